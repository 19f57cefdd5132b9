"""Scans in four segments at once, and checks that the consumption arrives if it is requested."""

from concurrent.futures import ThreadPoolExecutor

from boto3.dynamodb.conditions import Attr

from common import TABLE, boto3, show, table


def segment(n: int) -> tuple[list, float]:
    own = boto3.resource("dynamodb").Table(TABLE)
    items, units, start = [], 0.0, {}
    while True:
        page = own.scan(Segment=n, TotalSegments=4, Limit=10, ReturnConsumedCapacity="TOTAL", **start)
        items += page["Items"]
        units += page["ConsumedCapacity"]["CapacityUnits"]
        if "LastEvaluatedKey" not in page:
            return items, units
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


with ThreadPoolExecutor(4) as pool:
    parts = list(pool.map(segment, [0, 1, 2, 3] * 4))
plain = table.scan(Limit=10, FilterExpression=Attr("sk").gt(5))
assert "ConsumedCapacity" not in plain, plain
show({"items": [sorted(p[0], key=lambda i: i["sk"]) for p in parts], "units": sum(p[1] for p in parts), "plain": plain["Items"]})
