"""Requests that succeed, for Schemathesis: the first call of each operation is one.

Schemathesis loads this file. What it generates by itself ends at records that do not
exist. So the first call of an operation is replaced by a good request, on records that
are made just before. Later calls keep what was generated, but for their paths, which
name the same records. Each status is written to a file, which the test reads.
"""

import os
from pathlib import Path

import schemathesis
from schemathesis.core import NOT_SET

import description_provider
import description_records

STATUSES = os.environ["DOORWARD_STATUSES"]
GOOD = {
    "api": description_records.Admin,
    "provider": description_provider.Provider,
    "broker": description_provider.Broker,
}[os.environ["DOORWARD_DESCRIPTION"]]()

called = {}


@schemathesis.hook
def before_call(context, case, kwargs):
    method, path = case.operation.method.upper(), case.operation.path
    label = f"{method} {path}"
    if label not in called:
        good = GOOD.request(method, path)
        called[label] = good
        if good is not None:
            case.path_parameters = dict(good.path)
            case.query = dict(good.query)
            case.headers.clear()
            case.headers.update(good.headers)
            case.cookies = {}
            case.body = good.body if good.body is not None else NOT_SET
            case.media_type = good.media_type if good.body is not None else None
        return
    good = called[label]
    if good is not None and method != "DELETE":
        case.path_parameters = dict(good.path)


@schemathesis.hook
def after_call(context, case, response):
    with Path(STATUSES).open("a", encoding="utf-8") as file:
        method, path = case.operation.method.upper(), case.operation.path
        print(method, path, response.status_code, file=file)
    # A plugin of everything would stand before what later requests ask.
    is_change = method in ("POST", "PUT", "PATCH") and path.startswith("/plugins")
    if is_change and response.status_code < 300:
        description_records.forget_plugins()
