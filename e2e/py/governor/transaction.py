from boto3.dynamodb.types import TypeSerializer

from common import TABLE, client, item, show

to_dynamo = TypeSerializer().serialize


def put(i: int, **more: object) -> dict:
    return {"Put": {"TableName": TABLE, "Item": {k: to_dynamo(v) for k, v in item(i).items()}, **more}}


for batch in range(12):
    writes = [put(1000 + 10 * batch + i) for i in range(10)]
    for _ in range(2 if batch < 2 else 1):  # the second is a replay
        client.transact_write_items(TransactItems=writes, ClientRequestToken=f"{TABLE[-20:]}-{batch}")
try:
    client.transact_write_items(
        TransactItems=[put(2000), put(1000, ConditionExpression="attribute_not_exists(pk)")]
    )
    raise SystemExit("a transaction with a failed condition succeeded")
except client.exceptions.TransactionCanceledException as e:
    reasons = [r["Code"] for r in e.response["CancellationReasons"]]
keys = [{"Get": {"TableName": TABLE, "Key": {"pk": {"S": f"customer-{i % 10}"}, "sk": {"N": str(i)}}}} for i in (1000, 1079, 2000)]
got = client.transact_get_items(TransactItems=keys)
show({"reasons": reasons, "got": [r.get("Item", {}).get("price") for r in got["Responses"]]})
