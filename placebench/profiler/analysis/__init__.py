"""What is computed from recordings: findings, summaries, differences, merged flame graphs and budgets."""
