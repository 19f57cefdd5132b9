"""Makes a table with zae-limiter itself, and prints its items as DynamoDB JSON, one to a line.

make.py URL: URL is the endpoint of a DynamoDB engine. e2e/py/peers.txt pins what it needs (make .bin/peers/.done).
"""

import json
import os
import sys
from datetime import timedelta

os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_EC2_METADATA_DISABLED="true")

import boto3  # noqa: E402
import zae_limiter  # noqa: E402
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository  # noqa: E402
from zae_limiter.schedule import ScheduleEntry  # noqa: E402

TABLE = "ratelimits"
url = sys.argv[1]
where = {"region": "us-east-1", "endpoint_url": url}

fresh = SyncRepository(TABLE, **where, _skip_deprecation_warning=True)
fresh.create_table()
fresh.set_version_record("0.10.0", lambda_version=zae_limiter.__version__)
fresh.register_namespaces(["shop", "search", "gone", "empty"])


def namespace(name):
    return SyncRepository.open(name, stack=TABLE, auto_update=False, **where)


shop = namespace("shop")
shop.set_system_defaults([Limit.per_minute("rpm", 60)], on_unavailable="allow")
shop.set_resource_defaults("gpt-4o", [Limit.per_minute("rpm", 100, burst=150), Limit.per_minute("tpm", 50_000, soft=True)])
shop.set_resource_defaults(
    "embed",
    [
        Limit.custom("burst", capacity=1000, refill_amount=100, refill_period_seconds=10),
        Limit.quota("usd", 5000, cron="0 0 1 * *", tz="Europe/Berlin"),
    ],
)
shop.set_resource_defaults(
    "calendar",
    [
        Limit.quota("hourly", 10, cron="0 * * * *"),
        Limit.quota("daily", 20, cron="0 0 * * *"),
        Limit.quota("weekly", 30, cron="0 0 * * SUN"),
        Limit.quota("mid-month", 40, cron="0 0 15 * *"),
        Limit.quota("quarterly", 50, cron="0 0 1 */3 *"),
        Limit.quota("yearly", 60, cron="0 0 1 1 *"),
        Limit.quota("nightly", 70, cron="30 3 * * *"),
        Limit.quota("last-day", 80, cron="0 0 31 * *"),
    ],
)
shop.set_resource_defaults("session", [Limit.quota("calls", 200, reset_after=timedelta(hours=5))])
night = ScheduleEntry(cron="* 0-6 * * *", tz="Europe/Berlin", scale=2.0)
shop.set_resource_defaults("nights", [Limit.per_minute("rpm", 30).with_schedule((night,))])
shop.set_resource_defaults("closed", [Limit.per_minute("rpm", 30)])
shop.disable_resource("closed")
shop.create_entity("team-a", name="Team A", metadata={"plan": "pro"})
shop.create_entity("key-alice", parent_id="team-a", cascade=True)
shop.create_entity("key-bob", parent_id="team-a")
shop.create_entity("key-carol", parent_id="nobody", cascade=True)
shop.set_limits("team-a", [Limit.per_hour("rpm", 1000)])
shop.set_limits("key-alice", [Limit.per_second("rpm", 5), Limit.per_day("tpm", 90_000)], resource="gpt-4o")
shop.set_limits("stranger", [Limit.per_minute("rpm", 7)], resource="gpt-4o")
shop.set_entity_cascade("key-bob", True)
shop.set_entity_cascade("key-alice", False, resource="embed")
shop.bypass_entity("key-carol")

search = namespace("search")
search.set_resource_defaults("query", [Limit.per_second("qps", 10)])
gone = namespace("gone")
gone.set_system_defaults([Limit.per_minute("rpm", 1)])
gone.delete_namespace("gone")
fresh.set_system_defaults([Limit.per_minute("rpm", 3)])  # under the id that programs before 0.10 wrote: its name

limiter = SyncRateLimiter(repository=shop)  # buckets, audit events: not to be imported
with limiter.acquire("key-alice", "gpt-4o", {"rpm": 1, "tpm": 10}):
    pass
try:
    with limiter.acquire("stranger", "gpt-4o", {"rpm": 8}):
        pass
except RateLimitExceeded:
    pass

client = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=url)
items = [i for page in client.get_paginator("scan").paginate(TableName=TABLE) for i in page["Items"]]
for item in sorted(items, key=lambda i: (i["PK"]["S"], i["SK"]["S"])):
    print(json.dumps(item, sort_keys=True))
