"""What sections of a config are made of."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _length_or_auto(value: int) -> int:
    if value < 2 and value != AUTO_LENGTH:
        raise ValueError("must be at least 2, or -1 for as much as fits")
    return value


AUTO_LENGTH = -1  # as much as fits
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Share = Annotated[float, Field(gt=0, le=1)]
Blocks = Annotated[int, Field(ge=2, le=2**31 - 1)]
Length = Annotated[int, Field(le=2**31 - 1), AfterValidator(_length_or_auto)]


class Section(BaseModel):
    """A table of a config: unknown keys and wrong types are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
