"""What a client keeps from one response to the next: cookies as RFC 6265 reads them, on literal headers."""

import pytest

from placebench.http_session import Session, login_redirect


def cookies(*headers: str) -> str:
    """The Cookie header after responses with these Set-Cookie headers."""
    session = Session()
    session.keep_cookies(("Set-Cookie", each) for each in headers)
    return session.headers("GET").get("Cookie", "")


@pytest.mark.parametrize(
    ("header", "sent"),
    [
        ("sid=abc; Path=/; HttpOnly", "sid=abc"),
        ('sid={"u":1}; Path=/', 'sid={"u":1}'),
        ('sid="a b"', 'sid="a b"'),
        ("sid=a=b==; Secure", "sid=a=b=="),
        ("  sid\t=  abc  ;Path=/", "sid=abc"),
        ("sid=a,b/c:d@e", "sid=a,b/c:d@e"),
        ("sid[0]=x", "sid[0]=x"),
        ("sid=", "sid="),
        ("sid=é", "sid=é"),
        ("sid=abc; Expires=Wed, 09 Jun 2150 10:18:14 GMT", "sid=abc"),
        ("sid=abc; Max-Age=3600; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "sid=abc"),
        ("sid=abc; max-age=soon", "sid=abc"),
        ("sid=abc; Expires=tomorrow", "sid=abc"),
        ("sid", ""),
        ("=abc", ""),
        ("", ""),
    ],
)
def test_a_cookie_is_sent_back_as_it_came(header: str, sent: str) -> None:
    """Whatever its value holds but a semicolon; what has no name is not a cookie."""
    assert cookies(header) == sent


@pytest.mark.parametrize(
    "deletion",
    [
        "sid=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT; path=/",
        "sid=; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        "sid=x; EXPIRES=Sun Nov  6 08:49:37 1994",
        "sid=x; expires=Sunday, 06-Nov-94 08:49:37 GMT",
        'sid=""; Max-Age=0',
        "sid=x; Max-Age=-1; Expires=Wed, 09 Jun 2150 10:18:14 GMT",
        "sid=x; Max-Age=00",
    ],
)
def test_a_cookie_is_deleted_by_its_age_or_its_date(deletion: str) -> None:
    """In the three forms of a date that HTTP knows; another cookie stays."""
    assert cookies("sid=abc", "other=1", deletion) == "other=1"


def test_a_cookie_is_replaced() -> None:
    """By the newest of its name."""
    assert cookies("sid=1", "b=2", "sid=3") == "b=2; sid=3"


@pytest.mark.parametrize(
    ("path", "status", "location", "page"),
    [
        ("/orders", 302, "/accounts/login/?next=/orders", "/accounts/login/"),
        ("/orders", 303, "https://shop.example/users/sign_in", "/users/sign_in"),
        ("/orders", 302, "Login.php", "Login.php"),
        ("/login", 302, "/login/", ""),
        ("/login", 302, "/orders", ""),
        ("/orders", 301, "/orders/", ""),
        ("/orders", 302, "/blog/login-trouble/", ""),
        ("/orders", 200, "/login", ""),
        ("/orders", 302, "", ""),
    ],
)
def test_a_redirect_to_a_login_page(path: str, status: int, location: str, page: str) -> None:
    """A segment of the path says it; a slash more, a way out of the login and other pages do not."""
    assert login_redirect(path, status, location) == page
