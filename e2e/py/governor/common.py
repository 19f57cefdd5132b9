"""What the programs share: the table, and items of every type. Each program prints what it read as JSON.

They are ordinary programs: which endpoint they use is in AWS_ENDPOINT_URL_DYNAMODB.
"""

import base64
import decimal
import json
import os

import boto3

TABLE = os.environ["TABLE"]
client = boto3.client("dynamodb")
table = boto3.resource("dynamodb").Table(TABLE)


def item(i: int) -> dict:
    return {
        "pk": f"customer-{i % 10}",
        "sk": i,
        "price": decimal.Decimal(i) / 4,
        "blob": bytes([0, 255, i % 256]),
        "tags": {"ü", f"t{i % 3}"},
        "lines": [{"name": "é" * 50, "paid": i % 2 == 0, "note": None}],
    }


def show(value: object) -> None:
    def plain(v: object) -> object:
        if isinstance(v, set):
            return sorted(v)
        if isinstance(v, decimal.Decimal):
            return str(v)
        value = getattr(v, "value", v)  # of boto3's Binary
        return base64.b64encode(value).decode()

    print(json.dumps(value, default=plain, sort_keys=True))
