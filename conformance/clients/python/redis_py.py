"""redis-py against the server at SERVER: python3 redis_py.py PART..."""

import threading

import redis
from redis.cache import CacheConfig
from script import address, equal, fails, restart, run, until


def connect(name="SERVER", **options):
    host, port = address(name)
    return redis.Redis(host=host, port=port, **options)


def handshake():
    client = connect(client_name="redis-py")
    assert client.ping()
    equal(client.client_info()["resp"], "3", "protocol of the default handshake")
    equal(client.client_getname(), "redis-py")
    connect(db=5).set("other", "database")
    equal(client.get("other"), None)


def strings():
    client = connect()
    client.flushall()
    equal(client.get("missing"), None)
    assert client.set("key", "value")
    equal(client.get("key"), b"value")
    equal(client.set("key", "other", nx=True), None)
    equal(client.set("key", "other", get=True), b"value")
    equal(client.append("key", "!"), 6)
    equal(client.getrange("key", -2, -1), b"r!")
    equal([client.incr("n"), client.incrby("n", 41), client.decr("n")], [1, 42, 41])
    equal(client.incrbyfloat("n", 0.5), 41.5)
    client.mset({"a": "1", "b": "2"})
    equal(client.mget("a", "missing", "b"), [b"1", None, b"2"])
    equal(client.getdel("a"), b"1")
    equal(client.exists("a", "b"), 1)
    equal(client.delete("a", "b"), 1)
    fails(lambda: client.incr("key"), "value is not an integer or out of range")
    fails(lambda: client.execute_command("NOPE", "x"), "unknown command", "NOPE")
    fails(lambda: client.execute_command("GET"), "wrong number of arguments for 'get' command")
    equal(client.get("key"), b"other!", "the connection is usable after errors")


def expiry():
    client = connect()
    client.set("short", "x", px=50)
    assert 0 <= client.pttl("short") <= 50
    until("it expires", lambda: client.get("short") is None)
    equal(client.ttl("short"), -2)
    client.set("long", "x", ex=100)
    assert 90 <= client.ttl("long") <= 100
    equal(client.expire("long", 50, gt=True), False)
    equal(client.getex("long", persist=True), b"x")
    equal(client.ttl("long"), -1)


def binary():
    client = connect()
    every = bytes(range(256))
    client.set(every, every[::-1])
    equal(client.get(every), every[::-1])
    client.set("empty", "")
    equal(client.get("empty"), b"")
    large = every * (8 << 12)
    client.set("large", large)
    assert client.get("large") == large
    equal(client.strlen("large"), 8 << 20)
    client.delete("large")


def pipeline():
    client = connect()
    pipe = client.pipeline(transaction=False)
    for number in range(5000):
        pipe.set(f"pipe-{number}", number)
        pipe.get(f"pipe-{number}")
    replies = pipe.execute()
    equal(replies[1::2], [str(number).encode() for number in range(5000)])
    pipe.set("text", "x").incr("text").get("text")
    replies = pipe.execute(raise_on_error=False)
    equal([replies[0], replies[2]], [True, b"x"])
    assert isinstance(replies[1], redis.ResponseError), replies


def scan():
    client = connect()
    client.flushall()
    client.mset({f"scan:{number}": number for number in range(1000)})
    client.mset({f"other:{number}": number for number in range(50)})
    found = list(client.scan_iter(match="scan:*", count=100))
    equal(sorted(found), sorted(f"scan:{number}".encode() for number in range(1000)))
    equal(len(list(client.scan_iter())), 1050)


def pubsub():
    client = connect()
    listener = client.pubsub()
    listener.subscribe("news", "sport")
    listener.psubscribe("n*")
    listener.ssubscribe("shard")
    kinds = [listener.get_message(timeout=10)["type"] for _ in range(4)]
    equal(sorted(kinds), ["psubscribe", "ssubscribe", "subscribe", "subscribe"])
    equal(client.publish("news", b"\x00\xff"), 2)
    messages = sorted((listener.get_message(timeout=10) for _ in range(2)), key=lambda message: message["type"])
    equal([(message["type"], message["channel"], message["data"]) for message in messages],
          [("message", b"news", b"\x00\xff"), ("pmessage", b"news", b"\x00\xff")])
    equal(client.pubsub_numsub("news", "sport"), [(b"news", 1), (b"sport", 1)])
    equal(sorted(client.pubsub_channels("*")), [b"news", b"sport"])
    equal(client.pubsub_numpat(), 1)
    equal(client.spublish("shard", "piece"), 1)
    equal(listener.get_sharded_message(timeout=10)["data"], b"piece")
    listener.ping("still here")
    equal(listener.get_message(timeout=10)["type"], "pong")
    listener.unsubscribe()
    listener.punsubscribe()
    listener.sunsubscribe()
    for _ in range(4):
        listener.get_message(timeout=10)
    equal(client.publish("news", "nobody"), 0)
    in_a_thread(client)


def in_a_thread(client):
    received = threading.Event()
    listener = client.pubsub(ignore_subscribe_messages=True)
    listener.subscribe(thread=lambda message: received.set())
    worker = listener.run_in_thread(sleep_time=0.01, daemon=True)
    until("a message is there", lambda: client.publish("thread", "x") and received.wait(0.1))
    worker.stop()
    worker.join()


def transactions():
    client = connect()
    pipe = client.pipeline()
    equal(pipe.set("t", 1).incr("t").get("t").execute(), [True, 2, b"2"])
    with client.pipeline() as pipe:
        pipe.watch("t")
        client.set("t", 10)
        pipe.multi()
        pipe.set("t", 99)
        fails(pipe.execute, "Watched variable changed")
    equal(client.get("t"), b"10")

    def double(pipe):
        value = int(pipe.get("t"))
        pipe.multi()
        pipe.set("t", value * 2)

    equal(client.transaction(double, "t"), [True])
    equal(client.get("t"), b"20")
    client.set("text", "x")
    replies = client.pipeline().set("t", 1).incr("text").get("t").execute(raise_on_error=False)
    assert replies[0] is True and replies[2] == b"1" and "not an integer" in str(replies[1]), replies
    fails(client.pipeline().set("t", 2).execute_command("NOPE").execute, "unknown command")
    equal(client.get("t"), b"1", "nothing of a transaction that was refused")


def caching():
    client, other = connect(cache_config=CacheConfig()), connect()
    other.flushall()
    other.set("cached", "old")
    equal([client.get("cached"), client.get("cached")], [b"old", b"old"])
    cache = client.get_cache()
    equal(cache.size, 1)
    other.set("cached", "new")
    until("the change is seen", lambda: client.get("cached") == b"new")
    other.mset({f"many-{number}": number for number in range(500)})
    for number in range(500):
        client.get(f"many-{number}")
    equal(cache.size, 501)
    other.set("cached", "short", px=100)
    until("it is read again", lambda: client.get("cached") == b"short")
    until("expiry is seen", lambda: client.get("cached") is None)
    other.flushall()
    until("a flush is seen", lambda: client.get("many-7") is None and client.get("many-499") is None)


def reconnect():
    client = connect()
    client.set("before", "x")
    listener = client.pubsub()
    listener.subscribe("again")
    listener.get_message(timeout=10)
    restart()
    until("it is connected again", lambda: client.set("after", "y"))
    equal(client.get("after"), b"y")
    until("the subscription is back",
          lambda: client.publish("again", "x") == 1 or listener.get_message(timeout=0.01))


def password():
    equal(connect("LOCKED", password="secret").ping(), True)
    fails(connect("LOCKED", password="wrong").ping, "invalid username-password pair")
    fails(connect("LOCKED").ping, "HELLO must be called with the client already authenticated")


def cluster():
    host, port = address("CLUSTER")
    client = redis.RedisCluster(host=host, port=port)
    for number in range(300):
        client.set(f"cluster-{number}", number)
    equal([client.get(f"cluster-{number}") for number in range(300)], [str(number).encode() for number in range(300)])
    pipe = client.pipeline()
    for number in range(300):
        pipe.get(f"cluster-{number}")
    equal(len(pipe.execute()), 300)
    client.mset({"{tag}a": 1, "{tag}b": 2})
    equal(client.mget("{tag}a", "{tag}b"), [b"1", b"2"])
    fails(lambda: client.mget("a", "b"), "same key slot")
    equal(client.mget_nonatomic("cluster-1", "cluster-2", "cluster-3"), [b"1", b"2", b"3"])
    equal(len(client.get_primaries()), 3)
    equal(len(list(client.scan_iter(match="cluster-*", count=1000))), 300)


run({part.__name__: part for part in (
    handshake, strings, expiry, binary, pipeline, scan, pubsub, transactions, caching, reconnect, password, cluster)})
