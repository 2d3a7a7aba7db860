"""Analysis of recordings: findings, summaries, differences, merged flame graphs and budgets."""
