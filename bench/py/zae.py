"""Drives zae-limiter for the benchmarks: reads one JSON command per line and writes one JSON answer per line.

It changes and replaces nothing in zae-limiter. Calls are counted through botocore's own events. Clocks are shifted where
zae-limiter says that tests may: Repository._now_ms.
"""

import asyncio
import json
import logging
import os
import resource as rusage
import sys
import threading
import time

os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="us-east-1")
os.environ.update(AWS_EC2_METADATA_DISABLED="true")
logging.disable(logging.CRITICAL)

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository  # noqa: E402

NAMES = ["rpm", "tpm", "a", "b", "c"]
AMOUNTS = [1, 100, 1, 1, 1]


class Bench:
    """A user's process: a repository of each kind, on one table."""

    def __init__(self, url, table):
        self.url, self.table = url, table
        self.calls = 0
        fresh = SyncRepository(table, region="us-east-1", endpoint_url=url, _skip_deprecation_warning=True)
        fresh.create_table()
        self.repo = self.instance()
        self.sync = SyncRateLimiter(repository=self.repo)
        for n in (1, 2, 5):
            self.repo.set_resource_defaults(f"api{n}", [Limit.per_minute(name, 1_000_000) for name in NAMES[:n]])
        self.repo.set_resource_defaults("tight", [Limit.per_day("rpm", 1)])
        self.loop = asyncio.new_event_loop()
        self.later = None

    def instance(self):
        """The repository of another process, as far as one process can have several."""
        repo = SyncRepository.open(stack=self.table, region="us-east-1", endpoint_url=self.url, auto_update=False)
        repo._get_client().meta.events.register("before-send.dynamodb", self.count)
        return repo

    def count(self, **_):
        self.calls += 1

    async def limiter(self):
        if self.later is None:
            repo = await Repository.open(stack=self.table, region="us-east-1", endpoint_url=self.url, auto_update=False)
            (await repo._get_client()).meta.events.register("before-send.dynamodb", self.count)
            self.later = RateLimiter(repository=repo)
        return self.later

    def shape(self, shape, seconds, api, run):
        ids = [f"{run}-{i}" for i in range(shape["entities"])]
        if shape.get("cascade"):
            self.sync.create_entity(f"{run}-parent")
            for name in ids:
                self.sync.create_entity(name, parent_id=f"{run}-parent", cascade=True)
        if shape["op"] == "reject":
            target, consume = "tight", {"rpm": 1}
        else:
            n = shape["limits"]
            target, consume = f"api{n}", dict(zip(NAMES[:n], AMOUNTS[:n]))
        if api == "asyncio":
            return self.loop.run_until_complete(self.concurrent(shape, ids, target, consume, seconds))
        return self.threads(shape, ids, target, consume, seconds)

    def threads(self, shape, ids, target, consume, seconds):
        ops = {"acquire": self.acquire, "adjust": self.adjust, "reject": self.reject, "available": self.available}
        op = ops[shape["op"]]
        for name in ids:  # creates its bucket and makes it known
            for _ in range(2):
                self.warm(name, target, consume)
        took = [[] for _ in range(shape["workers"])]
        failed = [0] * shape["workers"]

        def work(worker):
            mine, end, i = took[worker], time.perf_counter() + seconds, worker
            while (began := time.perf_counter()) < end:
                try:
                    op(ids[i % len(ids)], target, consume)
                except Exception:
                    failed[worker] += 1
                mine.append(time.perf_counter() - began)
                i += 1 if shape["workers"] == 1 else 0

        with Meter(self) as meter:
            if shape["workers"] == 1:
                work(0)
            else:
                workers = [threading.Thread(target=work, args=(w,)) for w in range(shape["workers"])]
                for w in workers:
                    w.start()
                for w in workers:
                    w.join()
        return meter.answer(took, sum(failed))

    async def concurrent(self, shape, ids, target, consume, seconds):
        limiter = await self.limiter()
        for name in ids:
            for _ in range(2):
                async with limiter.acquire(name, target, consume):
                    pass
        took = [[] for _ in range(shape["workers"])]
        failed = [0] * shape["workers"]

        async def work(worker):
            mine, end, name = took[worker], time.perf_counter() + seconds, ids[worker % len(ids)]
            while (began := time.perf_counter()) < end:
                try:
                    async with limiter.acquire(name, target, consume):
                        pass
                except Exception:
                    failed[worker] += 1
                mine.append(time.perf_counter() - began)

        with Meter(self) as meter:
            await asyncio.gather(*(work(w) for w in range(shape["workers"])))
        return meter.answer(took, sum(failed))

    def warm(self, name, target, consume):
        try:
            self.acquire(name, target, consume)
        except RateLimitExceeded:
            pass

    def acquire(self, name, target, consume):
        with self.sync.acquire(name, target, consume):
            pass

    def adjust(self, name, target, consume):
        with self.sync.acquire(name, target, consume) as lease:
            lease.adjust(rpm=1)

    def reject(self, name, target, consume):
        try:
            self.acquire(name, target, consume)
        except RateLimitExceeded:
            return
        raise AssertionError("admitted")

    def available(self, name, target, _):
        self.sync.available(name, target)

    # Probes: each reports what it observed, without judging it.

    def tries(self, limiter, entity, target, times):
        """Asks for a token the given number of times."""
        seen = {"admitted": 0, "refused": 0, "failed": 0, "error": ""}
        for _ in range(times):
            try:
                with limiter.acquire(entity, target, {"rpm": 1}):
                    pass
                seen["admitted"] += 1
            except RateLimitExceeded:
                seen["refused"] += 1
            except Exception as e:
                seen["failed"] += 1
                seen["error"] = type(e).__name__
        return seen

    def custom(self, name, *limits):
        self.repo.set_resource_defaults(name, [Limit.custom("rpm", *limit) for limit in limits])

    def race(self, run, tokens, asks, instances):
        self.custom(run, (tokens, 1, 86400))
        limiters = [SyncRateLimiter(repository=self.instance()) for _ in range(instances)]
        seen = [None] * instances

        def work(i):
            seen[i] = self.tries(limiters[i], run, run, asks // instances)

        workers = [threading.Thread(target=work, args=(i,)) for i in range(instances)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        return {
            "admitted": sum(s["admitted"] for s in seen),
            "failed": sum(s["failed"] for s in seen),
            "error": max(s["error"] for s in seen),
        }

    def family(self, run, own, parents, names):
        self.custom(run, (own, 1, 86400))
        self.sync.create_entity(f"{run}-parent")
        self.repo.set_limits(f"{run}-parent", [Limit.custom("rpm", parents, 1, 86400)], resource=run)
        for name in names:
            self.sync.create_entity(name, parent_id=f"{run}-parent", cascade=True)

    def neighbour(self, run, own, parents, asks, innocent):
        noisy, quiet = f"{run}-noisy", f"{run}-quiet"
        self.family(run, own, parents, [noisy, quiet])
        loud = self.tries(self.sync, noisy, run, asks)
        left = self.sync.available(f"{run}-parent", run)["rpm"]
        return {"noisy": loud, "innocent": self.tries(self.sync, quiet, run, innocent), "lost": parents - loud["admitted"] - left}

    def parent(self, run, own, parents, asks):
        child = f"{run}-child"
        self.family(run, own, parents, [child])
        seen = self.tries(self.sync, child, run, asks)
        seen["lost"] = own - seen["admitted"] - self.sync.available(child, run)["rpm"]
        return seen

    def hammer(self, run, rate, burst, idle, seconds, drain):
        """Drains a bucket, waits, and asks for the given time. Returns the interval of each admission, in seconds."""
        self.custom(run, (burst, rate, 1))
        self.tries(self.sync, run, run, drain)
        time.sleep(idle)
        began, at = time.perf_counter(), []
        while (before := time.perf_counter()) - began < seconds:
            if self.tries(self.sync, run, run, 1)["admitted"]:
                at.append([before - began, time.perf_counter() - began])
        return {"at": at}

    def skew(self, run, tokens, ahead):
        """All clocks of a fleet agree except one, which asks after the others have taken all tokens."""
        self.custom(run, (tokens, 1, 1))
        began = time.perf_counter()
        first = self.tries(self.sync, run, run, tokens)
        other = self.instance()
        other._now_ms = lambda: int((time.time() + ahead) * 1000)
        second = self.tries(SyncRateLimiter(repository=other), run, run, tokens)
        return {"first": first, "second": second, "seconds": time.perf_counter() - began}

    def lowered(self, run, was, now, asks):
        self.repo.set_limits(run, [Limit.custom("rpm", was, 1, 86400)], resource=run)
        self.tries(self.sync, run, run, 1)
        self.repo.set_limits(run, [Limit.custom("rpm", now, 1, 86400)], resource=run)
        return self.tries(self.sync, run, run, asks)

    def usage(self, run, entities, asks, extra):
        """Books the table's stream with zae-limiter's own function. Returns what was spent and what was booked."""
        import boto3
        from botocore.config import Config
        from zae_limiter_aggregator.processor import process_stream_records

        self.custom(run, (1_000_000, 1_000_000, 60))
        spent = 0
        for i in range(asks):
            with self.sync.acquire(f"{run}-{i % entities}", run, {"rpm": 1}) as lease:
                lease.adjust(rpm=extra)
            spent += 1 + extra
        arn = self.repo._get_client().describe_table(TableName=self.table)["Table"]["LatestStreamArn"]
        unchecked = Config(parameter_validation=False)  # an engine's IDs may be shorter than AWS's
        streams = boto3.client("dynamodbstreams", endpoint_url=self.url, config=unchecked)
        records = []
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            at = streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
            while at:
                got = streams.get_records(ShardIterator=at, Limit=1000)
                at = got.get("NextShardIterator") if got["Records"] else None
                records += got["Records"]
        for r in records:  # a Lambda function receives seconds, not a datetime
            made = r["dynamodb"].get("ApproximateCreationDateTime")
            r["dynamodb"]["ApproximateCreationDateTime"] = made.timestamp() if made else time.time()
        os.environ["AWS_ENDPOINT_URL_DYNAMODB"] = self.url
        for i in range(0, len(records), 100):
            process_stream_records(records[i : i + 100], self.table, ["hourly"])
        booked = 0
        for i in range(entities):
            snapshots, _ = self.sync.get_usage_snapshots(entity_id=f"{run}-{i}", resource=run, window_type="hourly")
            booked += sum(s.counters.get("rpm", 0) for s in snapshots)
        return {"spent": spent, "booked": int(booked)}


class Meter:
    """The resources that a piece of work took in this process."""

    def __init__(self, bench):
        self.bench = bench

    def __enter__(self):
        self.calls, self.cpu, self.began = self.bench.calls, cpu(), time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds, self.cpu = time.perf_counter() - self.began, cpu() - self.cpu
        self.calls = self.bench.calls - self.calls

    def answer(self, took, failed):
        every = sorted(t for mine in took for t in mine)
        n = max(len(every), 1)
        return {
            "ops": len(every),
            "failed": failed,
            "seconds": self.seconds,
            "cpu": self.cpu,
            "calls": self.calls,
            "p50": every[len(every) // 2] if every else 0,
            "p99": every[min(n - 1, n * 99 // 100)] if every else 0,
        }


def cpu():
    u = rusage.getrusage(rusage.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


def main():
    out, sys.stdout = sys.stdout, open(os.devnull, "w")  # what zae-limiter prints is not an answer
    bench = Bench(sys.argv[1], sys.argv[2])
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        args = json.loads(line)
        try:
            answer = getattr(bench, args.pop("do"))(**args)
        except Exception as e:
            answer = {"broken": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
