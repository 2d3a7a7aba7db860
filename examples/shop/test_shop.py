from shop.main import list_orders


def test_a_page_has_50_orders_with_their_items():
    orders = list_orders(page=2)

    assert [order["id"] for order in orders] == list(range(19_950, 19_900, -1))
    assert {len(order["items"]) for order in orders} == {3}
