"""What evidence calls methods, measurements and costs, in words."""

from core.evidence.stored import CEILING, RANDOM, REACHABLE
from core.measurements import MEASUREMENTS
from core.methods import METHODS


def method_name(method: str) -> str:
    """Return what to call a method where space is short."""
    names = {
        CEILING: "one more retraining",
        REACHABLE: "the most a predictor can reach",
        RANDOM: "random scores",
    }
    if method in METHODS:
        return METHODS[method].title.replace(" influence", "")
    return names.get(method, method)


def measured_name(measurement: str) -> str:
    """Return what to call a measurement inside a sentence."""
    title = MEASUREMENTS[measurement].title if measurement in MEASUREMENTS else None
    if title is None or title.isupper():
        return title or measurement
    return title[0].lower() + title[1:]


def cost_name(measurement: str) -> str:
    """Return what to call the measured value, which rises with an image's cost."""
    known = MEASUREMENTS.get(measurement)
    return known.cost if known else measured_name(measurement)


def unit_of(measurement: str) -> str:
    """Return the unit of a measurement, "" where it is not known."""
    return MEASUREMENTS[measurement].unit if measurement in MEASUREMENTS else ""
