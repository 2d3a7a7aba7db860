"""The reshaper: inventories and allocations changed together, for who splits a provider into several."""

from werkzeug import Response

from placebench.reference.api import responses, validation
from placebench.reference.api.call import Call
from placebench.reference.api.handlers.allocations import claim_of, of_one_consumer, uuid_text
from placebench.reference.api.handlers.inventories import all_of_them, filled
from placebench.reference.store import reshape
from placebench.reference.store.reshape import Stock

new_shape = validation.record(
    {
        "inventories": validation.mapping(uuid_text, all_of_them, minimum=1),
        "allocations": validation.mapping(uuid_text, of_one_consumer),
    }
)


def create(call: Call) -> Response:
    """POST /reshaper: the final inventories of some providers, and the allocations that move with them.

    A capacity may be negative here, as in Placement, which refuses that in the calls on inventories alone.
    """
    content = new_shape(call.body(), "body")
    stocks = {
        uuid: Stock(
            generation=given["resource_provider_generation"],
            inventories={name: filled(inventory) for name, inventory in given["inventories"].items()},
        )
        for uuid, given in content["inventories"].items()
    }
    several = [claim_of(consumer, given) for consumer, given in content["allocations"].items()]
    call.database.write(lambda connection: reshape.reshape(connection, stocks, several))
    return responses.nothing()
