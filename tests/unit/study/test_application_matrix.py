"""The combinations of an application's study, as files are named after them."""

from placebench.study.application_matrix import ApplicationMatrix


def test_no_password_is_in_the_name_of_a_combination() -> None:
    """Neither that of a template's URL nor that of a setting; combinations whose names are then the same keep both."""
    axes = {
        "variant": ("app",),
        "template_db": ("postgresql://shop:first@db/shop", "postgresql://shop:second@db/shop"),
        "api_token": ("third",),
    }

    matrix = ApplicationMatrix(None, axes, {"variant": "app"})

    name = "variant=app,template_db=postgresql:_shop:_@db_shop,api_token=_"
    assert [name, f"{name}~1"] == list(matrix.names)
    assert list(axes["template_db"]) == [point["template_db"] for point in matrix.names.values()]
