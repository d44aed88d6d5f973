// rueidis against the server at SERVER: rueidis PART...
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "larder/clients/script"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

// open connects. By default, rueidis caches, with CLIENT TRACKING ON OPTIN in its handshake.
func open(options rueidis.ClientOption) (rueidis.Client, error) {
	if len(options.InitAddress) == 0 {
		options.InitAddress = []string{Address("SERVER")}
	}
	return rueidis.NewClient(options)
}

func connect(options rueidis.ClientOption) rueidis.Client {
	return Get(open(options))
}

func do(client rueidis.Client, words ...string) rueidis.RedisResult {
	return client.Do(ctx, client.B().Arbitrary(words...).Build())
}

func text(client rueidis.Client, words ...string) string {
	return Get(do(client, words...).ToString())
}

func number(client rueidis.Client, words ...string) int64 {
	return Get(do(client, words...).AsInt64())
}

func isNil(result rueidis.RedisResult) bool {
	return rueidis.IsRedisNil(result.Error())
}

func handshake() {
	client := connect(rueidis.ClientOption{ClientName: "rueidis"})
	info := text(client, "CLIENT", "INFO")
	Holds("the default handshake chose RESP3: "+info, strings.Contains(info, " resp=3"))
	Equal(text(client, "CLIENT", "GETNAME"), "rueidis")
	tracking := Get(do(client, "CLIENT", "TRACKINGINFO").AsMap())
	flags := tracking["flags"]
	Equal(Get(flags.AsStrSlice()), []string{"on", "optin"})
	other := connect(rueidis.ClientOption{SelectDB: 5})
	Equal(text(other, "SET", "other", "database"), "OK")
	Holds("another database", isNil(do(client, "GET", "other")))
}

func stringValues() {
	client := connect(rueidis.ClientOption{})
	text(client, "FLUSHALL")
	Holds("it is missing", isNil(do(client, "GET", "missing")))
	Equal(text(client, "SET", "key", "value"), "OK")
	Holds("it is there", isNil(client.Do(ctx, client.B().Set().Key("key").Value("other").Nx().Build())))
	Equal(Get(client.Do(ctx, client.B().Set().Key("key").Value("other").Get().Build()).ToString()), "value")
	Equal(number(client, "APPEND", "key", "!"), int64(6))
	Equal(text(client, "GETRANGE", "key", "-2", "-1"), "r!")
	Equal([]int64{number(client, "INCR", "n"), number(client, "INCRBY", "n", "41"), number(client, "DECR", "n")},
		[]int64{1, 42, 41})
	Equal(Get(client.Do(ctx, client.B().Incrbyfloat().Key("n").Increment(0.5).Build()).AsFloat64()), 41.5)
	text(client, "MSET", "a", "1", "b", "2")
	values := Get(do(client, "MGET", "a", "missing", "b").ToArray())
	Equal(Get(values[2].ToString()), "2")
	Holds("none in between", values[1].IsNil())
	Equal(text(client, "GETDEL", "a"), "1")
	Equal(number(client, "EXISTS", "a", "b"), int64(1))
	Equal(number(client, "DEL", "a", "b"), int64(1))
	Fails(do(client, "INCR", "key").Error(), "value is not an integer or out of range")
	Fails(do(client, "NOPE", "x").Error(), "unknown command", "NOPE")
	Fails(do(client, "GET").Error(), "wrong number of arguments for 'get' command")
	Equal(text(client, "GET", "key"), "other!")
}

func expiry() {
	client := connect(rueidis.ClientOption{})
	text(client, "SET", "short", "x", "PX", "50")
	Holds("it has a time to live", number(client, "PTTL", "short") <= 50)
	Until("it expires", func() bool { return isNil(do(client, "GET", "short")) })
	text(client, "SET", "long", "x", "EX", "100")
	Holds("it lives long", number(client, "TTL", "long") > 90)
	Equal(number(client, "EXPIRE", "long", "50", "GT"), int64(0))
	Equal(text(client, "GETEX", "long", "PERSIST"), "x")
	Equal(number(client, "TTL", "long"), int64(-1))
}

func binary() {
	client := connect(rueidis.ClientOption{})
	every := Every()
	text(client, "SET", every, every+"!")
	Equal(text(client, "GET", every), every+"!")
	text(client, "SET", "empty", "")
	Equal(text(client, "GET", "empty"), "")
	large := strings.Repeat(every, 8<<12)
	text(client, "SET", "large", large)
	Holds("8 MiB come back", text(client, "GET", "large") == large)
	Equal(number(client, "STRLEN", "large"), int64(8<<20))
	number(client, "DEL", "large")
}

func pipeline() {
	client := connect(rueidis.ClientOption{})
	var commands rueidis.Commands
	for number := range 5000 {
		key := fmt.Sprint("pipe-", number)
		commands = append(commands, client.B().Set().Key(key).Value(strconv.Itoa(number)).Build(),
			client.B().Get().Key(key).Build())
	}
	for index, result := range client.DoMulti(ctx, commands...) {
		expected := "OK"
		if index%2 == 1 {
			expected = strconv.Itoa(index / 2)
		}
		Equal(Get(result.ToString()), expected)
	}
	results := client.DoMulti(ctx, client.B().Set().Key("text").Value("x").Build(),
		client.B().Incr().Key("text").Build(), client.B().Get().Key("text").Build())
	Good(results[0].Error())
	Fails(results[1].Error(), "not an integer")
	Equal(Get(results[2].ToString()), "x")
}

func scan() {
	client := connect(rueidis.ClientOption{})
	text(client, "FLUSHALL")
	for number := range 1000 {
		text(client, "SET", fmt.Sprint("scan:", number), "x")
	}
	text(client, "MSET", "other:1", "x", "other:2", "x")
	found := map[string]bool{}
	scanner := rueidis.NewScanner(func(cursor uint64) (rueidis.ScanEntry, error) {
		return client.Do(ctx, client.B().Scan().Cursor(cursor).Match("scan:*").Count(100).Build()).AsScanEntry()
	})
	for key := range scanner.Iter() {
		found[key] = true
	}
	Good(scanner.Err())
	Equal(len(found), 1000)
	Holds("keys of the pattern alone", found["scan:0"] && found["scan:999"])
}

func pubsub() {
	client, listener := connect(rueidis.ClientOption{}), connect(rueidis.ClientOption{})
	messages := make(chan rueidis.PubSubMessage, 10)
	listen := func(command rueidis.Completed) {
		go func() {
			_ = listener.Receive(ctx, command, func(message rueidis.PubSubMessage) { messages <- message })
		}()
	}
	listen(listener.B().Subscribe().Channel("news", "sport").Build())
	listen(listener.B().Psubscribe().Pattern("n*").Build())
	listen(listener.B().Ssubscribe().Channel("shard").Build())
	Until("it has subscribed", func() bool {
		channels := Get(do(client, "PUBSUB", "NUMSUB", "news", "sport").AsIntMap())
		return channels["news"] == 1 && channels["sport"] == 1 && number(client, "PUBSUB", "NUMPAT") == 1
	})
	Equal(number(client, "PUBLISH", "news", Every()), int64(2))
	first, second := <-messages, <-messages
	Equal([]string{first.Message, second.Message}, []string{Every(), Every()})
	Equal(first.Pattern+second.Pattern, "n*")
	Until("it has subscribed", func() bool { return number(client, "SPUBLISH", "shard", "piece") == 1 })
	Equal((<-messages).Message, "piece")
	Equal(text(listener, "SET", "while", "subscribed"), "OK")
	for _, command := range []rueidis.Completed{
		listener.B().Unsubscribe().Build(), listener.B().Punsubscribe().Build(), listener.B().Sunsubscribe().Build(),
	} {
		Good(listener.Do(ctx, command).Error())
	}
	Until("it has unsubscribed", func() bool { return number(client, "PUBLISH", "news", "nobody") == 0 })
}

func transactions() {
	client := connect(rueidis.ClientOption{})
	other := connect(rueidis.ClientOption{})
	set := func(value string) []rueidis.Completed {
		return []rueidis.Completed{client.B().Multi().Build(),
			client.B().Set().Key("t").Value(value).Build(), client.B().Incr().Key("t").Build(),
			client.B().Exec().Build()}
	}
	results := client.DoMulti(ctx, set("1")...)
	replies := Get(results[3].ToArray())
	Equal(Get(replies[1].AsInt64()), int64(2))
	Good(client.Dedicated(func(tx rueidis.DedicatedClient) error {
		Good(tx.Do(ctx, tx.B().Watch().Key("t").Build()).Error())
		text(other, "SET", "t", "10")
		Holds("a change is noticed", isNil(tx.DoMulti(ctx, set("99")...)[3]))
		Good(tx.Do(ctx, tx.B().Watch().Key("t").Build()).Error())
		Good(tx.DoMulti(ctx, set("20")...)[3].Error())
		Good(tx.Do(ctx, tx.B().Multi().Build()).Error())
		Equal(Get(tx.Do(ctx, tx.B().Set().Key("t").Value("99").Build()).ToString()), "QUEUED")
		Equal(Get(tx.Do(ctx, tx.B().Discard().Build()).ToString()), "OK")
		Good(tx.Do(ctx, tx.B().Multi().Build()).Error())
		Fails(tx.Do(ctx, tx.B().Arbitrary("NOPE").Build()).Error(), "unknown command")
		Fails(tx.Do(ctx, tx.B().Exec().Build()).Error(), "discarded because of previous errors")
		return nil
	}))
	Equal(text(client, "GET", "t"), "21")
}

func caching() {
	client, other := connect(rueidis.ClientOption{}), connect(rueidis.ClientOption{})
	text(other, "FLUSHALL")
	text(other, "SET", "cached", "old")
	ask := func(key string) rueidis.RedisResult {
		return client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Minute)
	}
	Equal(Get(ask("cached").ToString()), "old")
	Holds("the second comes from the cache", ask("cached").IsCacheHit())
	becomes := func(key, expected string) func() bool {
		return func() bool {
			value, err := ask(key).ToString()
			if err != nil && !rueidis.IsRedisNil(err) {
				panic(err)
			}
			return value == expected
		}
	}
	text(other, "SET", "cached", "new")
	Until("the change is seen", becomes("cached", "new"))
	var keys []rueidis.CacheableTTL
	for number := range 500 {
		key := fmt.Sprint("many-", number)
		text(other, "SET", key, "x")
		keys = append(keys, rueidis.CT(client.B().Get().Key(key).Cache(), time.Minute))
	}
	for _, result := range client.DoMultiCache(ctx, keys...) {
		Equal(Get(result.ToString()), "x")
	}
	Holds("it is cached", ask("many-499").IsCacheHit())
	text(other, "SET", "cached", "short", "PX", "100")
	Until("it is read again", becomes("cached", "short"))
	Until("expiry is seen", becomes("cached", ""))
	text(other, "FLUSHALL")
	Until("a flush is seen", becomes("many-499", ""))
}

func reconnect() {
	client := connect(rueidis.ClientOption{})
	text(client, "SET", "before", "x")
	Restart()
	Until("it is connected again", func() bool { return do(client, "SET", "after", "y").Error() == nil })
	Equal(text(client, "GET", "after"), "y")
	caching()
}

func password() {
	locked := []string{Address("LOCKED")}
	client := connect(rueidis.ClientOption{InitAddress: locked, Password: "secret"})
	Equal(text(client, "PING"), "PONG")
	_, err := open(rueidis.ClientOption{InitAddress: locked, Password: "wrong"})
	Fails(err, "invalid username-password pair")
	_, err = open(rueidis.ClientOption{InitAddress: locked})
	Fails(err, "NOAUTH")
	Holds("it is an answer of the server", errors.As(err, new(*rueidis.RedisError)))
}

func cluster() {
	client := connect(rueidis.ClientOption{InitAddress: []string{Address("CLUSTER")}})
	var sets, gets rueidis.Commands
	for number := range 300 {
		key := fmt.Sprint("cluster-", number)
		sets = append(sets, client.B().Set().Key(key).Value(strconv.Itoa(number)).Build())
		gets = append(gets, client.B().Get().Key(key).Build())
	}
	for _, result := range client.DoMulti(ctx, sets...) {
		Good(result.Error())
	}
	for number, result := range client.DoMulti(ctx, gets...) {
		Equal(Get(result.ToString()), strconv.Itoa(number))
	}
	Good(client.Do(ctx, client.B().Mset().KeyValue().KeyValue("{tag}a", "1").KeyValue("{tag}b", "2").Build()).Error())
	values := Get(client.Do(ctx, client.B().Mget().Key("{tag}a", "{tag}b").Build()).AsStrSlice())
	Equal(values, []string{"1", "2"})
	Equal(len(client.Nodes()), 3)
}

func main() {
	Run([]Part{
		{"handshake", handshake}, {"strings", stringValues}, {"expiry", expiry}, {"binary", binary},
		{"pipeline", pipeline}, {"scan", scan}, {"pubsub", pubsub}, {"transactions", transactions},
		{"caching", caching}, {"reconnect", reconnect}, {"password", password}, {"cluster", cluster},
	})
}
