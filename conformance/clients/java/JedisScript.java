import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.BinaryJedisPubSub;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis against the server at SERVER: java JedisScript PART... */
final class JedisScript {
    static DefaultJedisClientConfig.Builder config() {
        return DefaultJedisClientConfig.builder();
    }

    static RedisClient connect(String name, DefaultJedisClientConfig.Builder config) {
        return RedisClient.builder()
                .hostAndPort(new HostAndPort(Script.host(name), Script.port(name)))
                .clientConfig(config.build())
                .build();
    }

    static RedisClient connect() {
        return connect("SERVER", config());
    }

    static Object call(RedisClient client, String... words) {
        CommandArguments command = new CommandArguments(() -> Script.bytes(words[0]));
        for (String word : List.of(words).subList(1, words.length)) {
            command.add(word);
        }
        return client.executeCommand(command);
    }

    static void handshake() {
        RedisClient client = connect("SERVER", config().clientName("jedis"));
        Script.equal(client.ping(), "PONG");
        String info = new String((byte[]) call(client, "CLIENT", "INFO"));
        Script.holds("the default handshake chose RESP3: " + info, info.contains(" resp=3"));
        Script.holds("it has its name: " + info, info.contains(" name=jedis "));
        connect("SERVER", config().database(5)).set("other", "database");
        Script.equal(client.get("other"), null);
    }

    static void strings() throws Exception {
        RedisClient client = connect();
        client.flushAll();
        Script.equal(client.get("missing"), null);
        Script.equal(client.set("key", "value"), "OK");
        Script.equal(client.set("key", "other", SetParams.setParams().nx()), null);
        Script.equal(client.setGet("key", "other"), "value");
        Script.equal(client.append("key", "!"), 6L);
        Script.equal(client.getrange("key", -2, -1), "r!");
        Script.equal(List.of(client.incr("n"), client.incrBy("n", 41), client.decr("n")), List.of(1L, 42L, 41L));
        Script.equal(client.incrByFloat("n", 0.5), 41.5);
        client.mset("a", "1", "b", "2");
        Script.equal(client.mget("a", "missing", "b").toString(), "[1, null, 2]");
        Script.equal(client.getDel("a"), "1");
        Script.equal(client.exists("a", "b"), 1L);
        Script.equal(client.del("a", "b"), 1L);
        Script.fails(() -> client.incr("key"), "value is not an integer or out of range");
        Script.fails(() -> call(client, "NOPE", "x"), "unknown command", "NOPE");
        Script.fails(() -> call(client, "GET"), "wrong number of arguments for 'get' command");
        Script.equal(client.get("key"), "other!");
    }

    static void expiry() throws Exception {
        RedisClient client = connect();
        client.set("short", "x", SetParams.setParams().px(50));
        Script.holds("it has a time to live", client.pttl("short") <= 50);
        Script.until("it expires", () -> client.get("short") == null);
        client.set("long", "x", SetParams.setParams().ex(100));
        Script.holds("it lives long", client.ttl("long") > 90);
        Script.equal(client.expire("long", 50, redis.clients.jedis.args.ExpiryOption.GT), 0L);
        Script.equal(client.getEx("long", GetExParams.getExParams().persist()), "x");
        Script.equal(client.ttl("long"), -1L);
    }

    static void binary() {
        RedisClient client = connect();
        byte[] every = Script.every(256);
        client.set(every, every);
        Script.equal(client.get(every), every);
        client.set("empty", "");
        Script.equal(client.get("empty"), "");
        byte[] large = Script.every(8 << 20);
        client.set(Script.bytes("large"), large);
        Script.equal(client.get(Script.bytes("large")), large);
        Script.equal(client.strlen("large"), 8L << 20);
        client.del("large");
    }

    static void pipeline() {
        RedisClient client = connect();
        try (Pipeline pipe = client.pipelined()) {
            List<Response<String>> gets = new ArrayList<>();
            for (int number = 0; number < 5000; number++) {
                pipe.set("pipe-" + number, "" + number);
                gets.add(pipe.get("pipe-" + number));
            }
            pipe.sync();
            for (int number = 0; number < 5000; number++) {
                Script.equal(gets.get(number).get(), "" + number);
            }
            pipe.set("text", "x");
            pipe.incr("text");
            pipe.get("text");
            List<Object> replies = pipe.syncAndReturnAll();
            Script.equal(List.of(replies.get(0), replies.get(2)), List.of("OK", "x"));
            Script.holds("an error of its own", replies.get(1) instanceof Exception);
        }
    }

    static void scan() {
        RedisClient client = connect();
        client.flushAll();
        for (int number = 0; number < 1000; number++) {
            client.set("scan:" + number, "x");
        }
        client.mset("other:1", "x", "other:2", "x");
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = client.scan(cursor, new ScanParams().match("scan:*").count(100));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        Script.equal(found.size(), 1000);
        Script.holds("keys of the pattern alone", found.contains("scan:0") && found.contains("scan:999"));
    }

    static final class Listener extends BinaryJedisPubSub {
        final BlockingQueue<byte[]> messages = new LinkedBlockingQueue<>();

        @Override
        public void onMessage(byte[] channel, byte[] message) {
            messages.add(message);
        }

        @Override
        public void onPMessage(byte[] pattern, byte[] channel, byte[] message) {
            messages.add(message);
        }
    }

    static void pubsub() throws Exception {
        RedisClient client = connect();
        Listener listener = new Listener();
        Thread thread = new Thread(() -> connect().subscribe(listener, Script.bytes("news"), Script.bytes("sport")));
        thread.setDaemon(true);
        thread.start();
        byte[] every = Script.every(256);
        Script.until("it has subscribed", () -> listener.getSubscribedChannels() == 2);
        listener.psubscribe(Script.bytes("n*"));
        Script.until("the pattern too", () -> listener.getSubscribedChannels() == 3);
        Script.equal(client.publish(Script.bytes("news"), every), 2L);
        Script.equal(listener.messages.poll(10, TimeUnit.SECONDS), every);
        Script.equal(listener.messages.poll(10, TimeUnit.SECONDS), every);
        listener.unsubscribe();
        listener.punsubscribe();
        thread.join(10_000);
        Script.holds("the listener ends", !thread.isAlive());
        Script.equal(client.publish("news", "nobody"), 0L);
    }

    static void transactions() throws Exception {
        RedisClient client = connect();
        try (AbstractTransaction transaction = client.multi()) {
            transaction.set("t", "1");
            transaction.incr("t");
            transaction.get("t");
            Script.equal(transaction.exec(), List.of("OK", 2L, "2"));
        }
        try (AbstractTransaction transaction = client.transaction(false)) {
            transaction.watch("t");
            client.set("t", "10");
            transaction.multi();
            transaction.set("t", "99");
            Script.equal(transaction.exec(), null);
            transaction.watch("t");
            transaction.multi();
            transaction.set("t", "20");
            Script.equal(transaction.exec(), List.of("OK"));
        }
        try (AbstractTransaction transaction = client.multi()) {
            transaction.set("t", "99");
            Script.equal(transaction.discard(), "OK");
        }
        Script.equal(client.get("t"), "20");
        client.set("text", "x");
        try (AbstractTransaction transaction = client.multi()) {
            transaction.set("t", "1");
            transaction.incr("text");
            transaction.get("t");
            List<Object> replies = transaction.exec();
            Script.equal(List.of(replies.get(0), replies.get(2)), List.of("OK", "1"));
            Script.holds("an error of its own", replies.get(1) instanceof Exception);
        }
    }

    static void caching() throws Exception {
        RedisClient other = connect();
        RedisClient client = RedisClient.builder()
                .hostAndPort(new HostAndPort(Script.host("SERVER"), Script.port("SERVER")))
                .clientConfig(config().resp3().build())
                .cacheConfig(CacheConfig.builder().maxSize(1000).build())
                .build();
        other.flushAll();
        other.set("cached", "old");
        Script.equal(List.of(client.get("cached"), client.get("cached")), List.of("old", "old"));
        Script.equal(client.getCache().getStats().getHitCount(), 1L);
        other.set("cached", "new");
        Script.until("the change is seen", () -> "new".equals(client.get("cached")));
        for (int number = 0; number < 500; number++) {
            other.set("many-" + number, "x");
            client.get("many-" + number);
        }
        Script.equal(client.getCache().getSize(), 501);
        other.set("cached", "short", SetParams.setParams().px(100));
        Script.until("it is read again", () -> "short".equals(client.get("cached")));
        Script.until("expiry is seen", () -> client.get("cached") == null);
        other.flushAll();
        Script.until("a flush is seen", () -> client.get("many-499") == null);
    }

    static void reconnect() throws Exception {
        RedisClient client = connect();
        client.set("before", "x");
        Script.restart();
        Script.until("it is connected again", () -> "OK".equals(client.set("after", "y")));
        Script.equal(client.get("after"), "y");
    }

    static void password() throws Exception {
        Script.equal(connect("LOCKED", config().password("secret")).ping(), "PONG");
        Script.fails(() -> connect("LOCKED", config().password("wrong")).ping(), "invalid username-password pair");
        Script.fails(() -> connect("LOCKED", config()).ping(), "NOAUTH");
    }

    static void cluster() throws Exception {
        RedisClusterClient client = RedisClusterClient.builder()
                .nodes(Set.of(new HostAndPort(Script.host("CLUSTER"), Script.port("CLUSTER"))))
                .build();
        for (int number = 0; number < 300; number++) {
            client.set("cluster-" + number, "" + number);
        }
        for (int number = 0; number < 300; number++) {
            Script.equal(client.get("cluster-" + number), "" + number);
        }
        client.mset("{tag}a", "1", "{tag}b", "2");
        Script.equal(client.mget("{tag}a", "{tag}b"), List.of("1", "2"));
        Script.equal(client.getClusterNodes().size(), 3);
        client.close();
    }

    public static void main(String[] arguments) {
        Script.run(arguments, Map.ofEntries(
                Map.entry("handshake", JedisScript::handshake),
                Map.entry("strings", JedisScript::strings),
                Map.entry("expiry", JedisScript::expiry),
                Map.entry("binary", JedisScript::binary),
                Map.entry("pipeline", JedisScript::pipeline),
                Map.entry("scan", JedisScript::scan),
                Map.entry("pubsub", JedisScript::pubsub),
                Map.entry("transactions", JedisScript::transactions),
                Map.entry("caching", JedisScript::caching),
                Map.entry("reconnect", JedisScript::reconnect),
                Map.entry("password", JedisScript::password),
                Map.entry("cluster", JedisScript::cluster)));
    }
}
