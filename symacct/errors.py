"""Every error that symacct raises on purpose.

    SymacctError
    ├── DimError            a dim's name or size
    │   ├── UnknownDimError     a name that the account does not have
    │   ├── MissingSizeError    a dim without a size where a number is needed
    │   └── AssumptionError     sizes that break a relation the trace relied on
    ├── SpecError           the description of an input
    ├── TargetError         what to trace: a file, a name, a builder
    ├── TraceError          running the model on tensors without data
    │   ├── DataDependentError  an answer that only data can give
    │   └── UnknownOpError      ops without a rule, under ``strict=True``
    ├── RuleError           a rule or its pattern
    ├── CheckError          a formula that other sizes refute
    │   └── StructuralError     what is no polynomial in a dim that changes the graph
    ├── VerifyError         a real run that cannot be made
    ├── DeviceError         a device that the table does not have, or what it lacks
    ├── UnitError           an amount that cannot be read, or is of something else
    ├── QuestionError       a question that no sizes answer
    └── ReportError         a report that cannot be made: its template, or what it asks for

The message says what is wrong, where, with which sizes, and what to do.
"""

from __future__ import annotations

from typing import Any


class SymacctError(Exception):
    """Base of all errors that symacct raises on purpose."""


class DimError(SymacctError, ValueError):
    """A dim has a name or a size that cannot be used."""


class UnknownDimError(DimError):
    """A size was given for a dim that the account does not have."""


class MissingSizeError(DimError):
    """A number was asked for while a dim has no size."""


class AssumptionError(DimError):
    """The sizes break a relation that the traced program relied on."""


class SpecError(SymacctError, ValueError):
    """The description of an input cannot be read."""


class TargetError(SymacctError):
    """There is nothing to trace where the user pointed."""


class TraceError(SymacctError):
    """The model failed while it ran on tensors without data.

    ``unequal`` lists pairs of symbolic sizes that the failing op found unequal.
    """

    unequal: tuple[tuple[Any, Any], ...] = ()


class DataDependentError(TraceError):
    """The program asked for a value or a shape that only data can give."""


class UnknownOpError(TraceError):
    """The graph has ops without a rule, and ``strict=True`` was asked for."""


class RuleError(SymacctError):
    """A rule, its key or its pattern does not fit the op that it is for."""


class CheckError(SymacctError):
    """A formula gave another number than a run at other sizes."""


class StructuralError(CheckError):
    """A figure is no polynomial in a dim that changes the graph, or exists only where that dim is a number."""


class VerifyError(SymacctError):
    """The real run that an account was to be laid beside cannot be made here."""


class DeviceError(SymacctError):
    """The table of devices does not have what was asked for."""


class UnitError(SymacctError, ValueError):
    """An amount with a unit cannot be read, or is an amount of something else."""


class QuestionError(SymacctError):
    """A question has no answer: nothing fits, or what is asked does not depend on what may change."""


class ReportError(SymacctError):
    """A report cannot be made: the template, or what it asks for."""
