from boto3.dynamodb.conditions import Key

from common import TABLE, client, show, table

found = []
for customer in range(10):
    pages = client.get_paginator("query").paginate(
        TableName=TABLE,
        KeyConditionExpression="pk = :pk AND sk > :from",
        ExpressionAttributeValues={":pk": {"S": f"customer-{customer}"}, ":from": {"N": "10"}},
        ConsistentRead=True,
        PaginationConfig={"PageSize": 4},
    )
    for page in pages:
        assert "ConsumedCapacity" not in page, page
        found += page["Items"]
last = table.query(KeyConditionExpression=Key("pk").eq("customer-7"), ScanIndexForward=False, Limit=1)
show({"found": [f["sk"] for f in found], "last": last["Items"], "count": last["Count"]})
