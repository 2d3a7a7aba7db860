"""Make the tables and fill them with 100,000 rows, each time the same: `python -m shop.seed`."""

import os

from sqlalchemy import create_engine, text

from shop.models import Base

ROWS = {
    "customers": """
        INSERT INTO customers (email, name, country)
        SELECT 'customer' || n || '@example.com', 'Customer ' || n, (ARRAY['DE', 'FR', 'NL', 'PL'])[1 + n % 4]
        FROM generate_series(1, 4000) AS n""",
    "products": """
        INSERT INTO products (sku, name, price_cents)
        SELECT 'SKU-' || n, 'Product ' || n, 99 + n * 7919 % 20000
        FROM generate_series(1, 1000) AS n""",
    "orders": """
        INSERT INTO orders (customer_id, status, placed_at)
        SELECT 1 + n * 7919 % 4000, (ARRAY['paid', 'sent', 'returned'])[1 + n % 3],
               make_timestamptz(2026, 1, 1, 0, 0, 0, 'UTC') + n * interval '10 minutes'
        FROM generate_series(1, 20000) AS n""",
    "order_items": """
        INSERT INTO order_items (order_id, product_id, quantity)
        SELECT 1 + n % 20000, 1 + (n % 20000 * 31 + n / 20000 * 250) % 1000, 1 + n % 3
        FROM generate_series(0, 74999) AS n""",
}


def main() -> None:
    with create_engine(os.environ.get("SQLALCHEMY_DATABASE_URL") or os.environ["DATABASE_URL"]).begin() as connection:
        Base.metadata.create_all(connection)
        counts = {table: connection.execute(text(insert)).rowcount for table, insert in ROWS.items()}
        connection.execute(text("ANALYZE"))
    print(f"{sum(counts.values())} rows:", ", ".join(f"{count} {table}" for table, count in counts.items()))


if __name__ == "__main__":
    main()
