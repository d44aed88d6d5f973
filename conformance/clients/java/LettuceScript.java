import io.lettuce.core.ClientOptions;
import io.lettuce.core.ExpireArgs;
import io.lettuce.core.GetExArgs;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.CommandType;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Lettuce against the server at SERVER: java LettuceScript PART... */
final class LettuceScript {
    static RedisURI uri(String name) {
        return RedisURI.create(Script.host(name), Script.port(name));
    }

    static StatefulRedisConnection<String, String> open(RedisURI uri) {
        RedisClient client = RedisClient.create(uri);
        client.setOptions(ClientOptions.builder().pingBeforeActivateConnection(true).build());
        return client.connect();
    }

    static RedisCommands<String, String> connect() {
        return open(uri("SERVER")).sync();
    }

    static RedisCommands<byte[], byte[]> connectBytes() {
        return RedisClient.create(uri("SERVER")).connect(ByteArrayCodec.INSTANCE).sync();
    }

    static String call(RedisCommands<String, String> client, String name, String... words) {
        ProtocolKeyword keyword = new ProtocolKeyword() {
            @Override
            public byte[] getBytes() {
                return Script.bytes(name);
            }

            @Override
            public String toString() {
                return name;
            }
        };
        CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
        for (String word : words) {
            arguments.add(word);
        }
        return client.dispatch(keyword, new StatusOutput<>(StringCodec.UTF8), arguments);
    }

    static void handshake() {
        RedisURI uri = uri("SERVER");
        uri.setClientName("lettuce");
        RedisCommands<String, String> client = open(uri).sync();
        Script.equal(client.ping(), "PONG");
        String info = client.clientInfo();
        Script.holds("the default handshake chose RESP3: " + info, info.contains(" resp=3"));
        Script.equal(client.clientGetname(), "lettuce");
        RedisURI other = uri("SERVER");
        other.setDatabase(5);
        open(other).sync().set("other", "database");
        Script.equal(client.get("other"), null);
    }

    static void strings() throws Exception {
        RedisCommands<String, String> client = connect();
        client.flushall();
        Script.equal(client.get("missing"), null);
        Script.equal(client.set("key", "value"), "OK");
        Script.equal(client.set("key", "other", SetArgs.Builder.nx()), null);
        Script.equal(client.setGet("key", "other"), "value");
        Script.equal(client.append("key", "!"), 6L);
        Script.equal(client.getrange("key", -2, -1), "r!");
        Script.equal(List.of(client.incr("n"), client.incrby("n", 41), client.decr("n")), List.of(1L, 42L, 41L));
        Script.equal(client.incrbyfloat("n", 0.5), 41.5);
        client.mset(Map.of("a", "1", "b", "2"));
        Script.equal(client.mget("a", "missing", "b"),
                List.of(KeyValue.just("a", "1"), KeyValue.empty("missing"), KeyValue.just("b", "2")));
        Script.equal(client.getdel("a"), "1");
        Script.equal(client.exists("a", "b"), 1L);
        Script.equal(client.del("a", "b"), 1L);
        Script.fails(() -> client.incr("key"), "value is not an integer or out of range");
        Script.fails(() -> call(client, "NOPE", "x"), "unknown command", "NOPE");
        Script.fails(() -> call(client, "GET"), "wrong number of arguments for 'get' command");
        Script.equal(client.get("key"), "other!");
    }

    static void expiry() throws Exception {
        RedisCommands<String, String> client = connect();
        client.set("short", "x", SetArgs.Builder.px(50));
        Script.holds("it has a time to live", client.pttl("short") <= 50);
        Script.until("it expires", () -> client.get("short") == null);
        client.set("long", "x", SetArgs.Builder.ex(100));
        Script.holds("it lives long", client.ttl("long") > 90);
        Script.equal(client.expire("long", 50, ExpireArgs.Builder.gt()), false);
        Script.equal(client.getex("long", GetExArgs.Builder.persist()), "x");
        Script.equal(client.ttl("long"), -1L);
    }

    static void binary() {
        RedisCommands<byte[], byte[]> client = connectBytes();
        byte[] every = Script.every(256);
        client.set(every, every);
        Script.equal(client.get(every), every);
        client.set(Script.bytes("empty"), new byte[0]);
        Script.equal(client.get(Script.bytes("empty")), new byte[0]);
        byte[] large = Script.every(8 << 20);
        client.set(Script.bytes("large"), large);
        Script.equal(client.get(Script.bytes("large")), large);
        Script.equal(client.strlen(Script.bytes("large")), 8L << 20);
        client.del(Script.bytes("large"));
    }

    /** Commands are sent together when the connection is flushed. */
    static void pipeline() throws Exception {
        StatefulRedisConnection<String, String> connection = open(uri("SERVER"));
        RedisAsyncCommands<String, String> client = connection.async();
        connection.setAutoFlushCommands(false);
        List<RedisFuture<?>> sets = new ArrayList<>();
        List<RedisFuture<String>> gets = new ArrayList<>();
        for (int number = 0; number < 5000; number++) {
            sets.add(client.set("pipe-" + number, "" + number));
            gets.add(client.get("pipe-" + number));
        }
        RedisFuture<String> set = client.set("text", "x");
        RedisFuture<Long> incr = client.incr("text");
        RedisFuture<String> get = client.get("text");
        connection.flushCommands();
        Script.holds("all are answered",
                LettuceFutures.awaitAll(Duration.ofSeconds(20), sets.toArray(new RedisFuture<?>[0])));
        for (int number = 0; number < 5000; number++) {
            Script.equal(gets.get(number).get(20, TimeUnit.SECONDS), "" + number);
        }
        Script.equal(List.of(set.get(), get.get()), List.of("OK", "x"));
        Script.fails(incr::get, "not an integer");
    }

    static void scan() {
        RedisCommands<String, String> client = connect();
        client.flushall();
        for (int number = 0; number < 1000; number++) {
            client.set("scan:" + number, "x");
        }
        client.mset(Map.of("other:1", "x", "other:2", "x"));
        Set<String> found = new HashSet<>();
        ScanIterator.scan(client, ScanArgs.Builder.matches("scan:*").limit(100)).forEachRemaining(found::add);
        Script.equal(found.size(), 1000);
        Script.holds("keys of the pattern alone", found.contains("scan:0") && found.contains("scan:999"));
    }

    static final class Listener extends RedisPubSubAdapter<byte[], byte[]> {
        final BlockingQueue<byte[]> messages = new LinkedBlockingQueue<>();

        @Override
        public void message(byte[] channel, byte[] message) {
            messages.add(message);
        }

        @Override
        public void message(byte[] pattern, byte[] channel, byte[] message) {
            messages.add(message);
        }

        @Override
        public void smessage(byte[] channel, byte[] message) {
            messages.add(message);
        }
    }

    static void pubsub() throws Exception {
        RedisCommands<byte[], byte[]> client = connectBytes();
        StatefulRedisPubSubConnection<byte[], byte[]> connection =
                RedisClient.create(uri("SERVER")).connectPubSub(ByteArrayCodec.INSTANCE);
        Listener listener = new Listener();
        connection.addListener(listener);
        byte[] news = Script.bytes("news");
        byte[] every = Script.every(256);
        connection.sync().subscribe(news, Script.bytes("sport"));
        connection.sync().psubscribe(Script.bytes("n*"));
        connection.sync().ssubscribe(Script.bytes("shard"));
        Script.equal(client.publish(news, every), 2L);
        Script.equal(listener.messages.poll(10, TimeUnit.SECONDS), every);
        Script.equal(listener.messages.poll(10, TimeUnit.SECONDS), every);
        Script.equal(client.spublish(Script.bytes("shard"), every), 1L);
        Script.equal(listener.messages.poll(10, TimeUnit.SECONDS), every);
        Script.equal(client.pubsubChannels().size(), 2);
        Script.equal(client.pubsubNumpat(), 1L);
        connection.sync().unsubscribe();
        connection.sync().punsubscribe();
        connection.sync().sunsubscribe(Script.bytes("shard"));
        Script.until("it has unsubscribed", () -> client.publish(news, every) == 0L);
    }

    static void transactions() throws Exception {
        RedisCommands<String, String> client = connect();
        RedisCommands<String, String> other = connect();
        client.multi();
        client.set("t", "1");
        client.incr("t");
        client.get("t");
        Script.equal(client.exec().stream().toList(), List.of("OK", 2L, "2"));
        client.watch("t");
        other.set("t", "10");
        client.multi();
        client.set("t", "99");
        Script.holds("a change is noticed", client.exec().wasDiscarded());
        client.watch("t");
        client.multi();
        client.set("t", "20");
        Script.holds("nothing has changed", !client.exec().wasDiscarded());
        client.multi();
        client.set("t", "99");
        Script.equal(client.discard(), "OK");
        Script.equal(client.get("t"), "20");
        client.set("text", "x");
        client.multi();
        client.set("t", "1");
        client.incr("text");
        client.get("t");
        TransactionResult replies = client.exec();
        Script.equal(List.of(replies.get(0), replies.get(2)), List.of("OK", "1"));
        Script.holds("an error of its own", replies.<Object>get(1) instanceof Exception);
    }

    static void caching() throws Exception {
        RedisCommands<String, String> other = connect();
        other.flushall();
        other.set("cached", "old");
        StatefulRedisConnection<String, String> connection = open(uri("SERVER"));
        Map<String, String> map = new ConcurrentHashMap<>();
        CacheFrontend<String, String> cache = ClientSideCaching.enable(
                CacheAccessor.forMap(map), connection, TrackingArgs.Builder.enabled());
        Script.equal(cache.get("cached"), "old");
        Script.equal(map.get("cached"), "old");
        other.set("cached", "new");
        Script.until("the change is seen", () -> "new".equals(cache.get("cached")));
        for (int number = 0; number < 500; number++) {
            other.set("many-" + number, "x");
            cache.get("many-" + number);
        }
        Script.equal(map.size(), 501);
        other.set("cached", "short", SetArgs.Builder.px(100));
        Script.until("it is read again", () -> "short".equals(cache.get("cached")));
        Script.until("expiry is seen", () -> cache.get("cached") == null);
        for (int number = 0; number < 500; number++) {
            other.del("many-" + number);
        }
        Script.until("every deletion is seen", map::isEmpty);
    }

    static void reconnect() throws Exception {
        RedisCommands<String, String> client = connect();
        client.set("before", "x");
        StatefulRedisPubSubConnection<byte[], byte[]> connection =
                RedisClient.create(uri("SERVER")).connectPubSub(ByteArrayCodec.INSTANCE);
        Listener listener = new Listener();
        connection.addListener(listener);
        connection.sync().subscribe(Script.bytes("again"));
        Script.restart();
        Script.until("it is connected again", () -> "OK".equals(client.set("after", "y")));
        Script.equal(client.get("after"), "y");
        Script.until("the subscription is back", () -> client.publish("again", "x") == 1L);
        Script.equal(listener.messages.poll(10, TimeUnit.SECONDS), Script.bytes("x"));
    }

    static RedisURI locked(String password) {
        return RedisURI.builder(uri("LOCKED")).withPassword(password).build();
    }

    /**
     * Expects the connection to be refused with these words. Lettuce closes a connection whose handshake has failed, and records the error only after that: if
     * the thread is delayed, Lettuce reports the closed connection instead. It does so with redis-server too, and with any server that keeps the connection
     * open.
     */
    static void refused(RedisURI uri, String words) throws Exception {
        Script.until("told of: " + words, () -> {
            try {
                Script.fails(() -> open(uri), words);
                return true;
            } catch (AssertionError error) {
                String text = String.valueOf(error.getMessage());
                if (text.contains("Connection closed prematurely") || text.contains("HandshakeHandler not registered")) {
                    return false;
                }
                throw error;
            }
        });
    }

    static void password() throws Exception {
        Script.equal(open(locked("secret")).sync().ping(), "PONG");
        refused(locked("wrong"), "invalid username-password pair");
        refused(uri("LOCKED"), "NOAUTH");
    }

    static void cluster() {
        RedisClusterClient client = RedisClusterClient.create(uri("CLUSTER"));
        RedisAdvancedClusterCommands<String, String> commands = client.connect().sync();
        for (int number = 0; number < 300; number++) {
            commands.set("cluster-" + number, "" + number);
        }
        for (int number = 0; number < 300; number++) {
            Script.equal(commands.get("cluster-" + number), "" + number);
        }
        commands.mset(Map.of("{tag}a", "1", "{tag}b", "2"));
        Script.equal(commands.mget("cluster-1", "cluster-2", "{tag}b"), List.of(
                KeyValue.just("cluster-1", "1"), KeyValue.just("cluster-2", "2"), KeyValue.just("{tag}b", "2")));
        Script.equal(client.getPartitions().size(), 3);
        Script.equal(commands.dbsize(), 302L);
    }

    public static void main(String[] arguments) {
        Script.run(arguments, Map.ofEntries(
                Map.entry("handshake", LettuceScript::handshake),
                Map.entry("strings", LettuceScript::strings),
                Map.entry("expiry", LettuceScript::expiry),
                Map.entry("binary", LettuceScript::binary),
                Map.entry("pipeline", LettuceScript::pipeline),
                Map.entry("scan", LettuceScript::scan),
                Map.entry("pubsub", LettuceScript::pubsub),
                Map.entry("transactions", LettuceScript::transactions),
                Map.entry("caching", LettuceScript::caching),
                Map.entry("reconnect", LettuceScript::reconnect),
                Map.entry("password", LettuceScript::password),
                Map.entry("cluster", LettuceScript::cluster)));
    }
}
