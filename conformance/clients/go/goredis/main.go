// go-redis against the server at SERVER: goredis PART...
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	. "larder/clients/script"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func connect(options redis.Options) *redis.Client {
	if options.Addr == "" {
		options.Addr = Address("SERVER")
	}
	return redis.NewClient(&options)
}

func handshake() {
	client := connect(redis.Options{ClientName: "go-redis"})
	Equal(Get(client.Ping(ctx).Result()), "PONG")
	info := Get(client.Do(ctx, "CLIENT", "INFO").Text())
	Holds("the default handshake chose RESP3: "+info, strings.Contains(info, " resp=3"))
	Equal(Get(client.ClientGetName(ctx).Result()), "go-redis")
	Good(connect(redis.Options{DB: 5}).Set(ctx, "other", "database", 0).Err())
	Equal(client.Get(ctx, "other").Err(), redis.Nil)
}

func stringValues() {
	client := connect(redis.Options{})
	Good(client.FlushAll(ctx).Err())
	Equal(client.Get(ctx, "missing").Err(), redis.Nil)
	Good(client.Set(ctx, "key", "value", 0).Err())
	Equal(client.SetArgs(ctx, "key", "other", redis.SetArgs{Mode: "NX"}).Err(), redis.Nil)
	Equal(Get(client.SetArgs(ctx, "key", "other", redis.SetArgs{Get: true}).Result()), "value")
	Equal(Get(client.Append(ctx, "key", "!").Result()), int64(6))
	Equal(Get(client.GetRange(ctx, "key", -2, -1).Result()), "r!")
	Equal(Get(client.Incr(ctx, "n").Result()), int64(1))
	Equal(Get(client.IncrBy(ctx, "n", 41).Result()), int64(42))
	Equal(Get(client.Decr(ctx, "n").Result()), int64(41))
	Equal(Get(client.IncrByFloat(ctx, "n", 0.5).Result()), 41.5)
	Good(client.MSet(ctx, "a", "1", "b", "2").Err())
	Equal(Get(client.MGet(ctx, "a", "missing", "b").Result()), []any{"1", nil, "2"})
	Equal(Get(client.GetDel(ctx, "a").Result()), "1")
	Equal(Get(client.Exists(ctx, "a", "b").Result()), int64(1))
	Equal(Get(client.Del(ctx, "a", "b").Result()), int64(1))
	Fails(client.Incr(ctx, "key").Err(), "value is not an integer or out of range")
	Fails(client.Do(ctx, "NOPE", "x").Err(), "unknown command", "NOPE")
	Fails(client.Do(ctx, "GET").Err(), "wrong number of arguments for 'get' command")
	Equal(Get(client.Get(ctx, "key").Result()), "other!")
}

func expiry() {
	client := connect(redis.Options{})
	Good(client.Set(ctx, "short", "x", 50*time.Millisecond).Err())
	left := Get(client.PTTL(ctx, "short").Result())
	Holds("it has a time to live", left <= 50*time.Millisecond)
	Until("it expires", func() bool { return client.Get(ctx, "short").Err() == redis.Nil })
	Good(client.Set(ctx, "long", "x", 100*time.Second).Err())
	Holds("it lives long", Get(client.TTL(ctx, "long").Result()) > 90*time.Second)
	Equal(Get(client.ExpireGT(ctx, "long", 50*time.Second).Result()), false)
	Equal(Get(client.GetEx(ctx, "long", 0).Result()), "x")
	Equal(Get(client.TTL(ctx, "long").Result()), time.Duration(-1))
}

func binary() {
	client := connect(redis.Options{})
	every := Every()
	Good(client.Set(ctx, every, every+"!", 0).Err())
	Equal(Get(client.Get(ctx, every).Result()), every+"!")
	Good(client.Set(ctx, "empty", "", 0).Err())
	Equal(Get(client.Get(ctx, "empty").Result()), "")
	large := strings.Repeat(every, 8<<12)
	Good(client.Set(ctx, "large", large, 0).Err())
	Holds("8 MiB come back", Get(client.Get(ctx, "large").Result()) == large)
	Equal(Get(client.StrLen(ctx, "large").Result()), int64(8<<20))
	Good(client.Del(ctx, "large").Err())
}

func pipeline() {
	client := connect(redis.Options{})
	pipe := client.Pipeline()
	var gets []*redis.StringCmd
	for number := range 5000 {
		pipe.Set(ctx, fmt.Sprint("pipe-", number), number, 0)
		gets = append(gets, pipe.Get(ctx, fmt.Sprint("pipe-", number)))
	}
	Get(pipe.Exec(ctx))
	for number, get := range gets {
		Equal(Get(get.Result()), strconv.Itoa(number))
	}
	pipe = client.Pipeline()
	set, incr, get := pipe.Set(ctx, "text", "x", 0), pipe.Incr(ctx, "text"), pipe.Get(ctx, "text")
	_, err := pipe.Exec(ctx)
	Fails(err, "not an integer")
	Fails(incr.Err(), "not an integer")
	Equal([]string{Get(set.Result()), Get(get.Result())}, []string{"OK", "x"})
}

func scan() {
	client := connect(redis.Options{})
	Good(client.FlushAll(ctx).Err())
	for number := range 1000 {
		Good(client.Set(ctx, fmt.Sprint("scan:", number), "x", 0).Err())
	}
	Good(client.MSet(ctx, "other:1", "x", "other:2", "x").Err())
	found := map[string]bool{}
	keys := client.Scan(ctx, 0, "scan:*", 100).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	Good(keys.Err())
	Equal(len(found), 1000)
	Holds("keys of the pattern alone", found["scan:0"] && found["scan:999"])
}

func receive(listener *redis.PubSub) any {
	return Get(listener.ReceiveTimeout(ctx, 10*time.Second))
}

func pubsub() {
	client := connect(redis.Options{})
	listener := client.Subscribe(ctx, "news", "sport")
	Good(listener.PSubscribe(ctx, "n*"))
	for range 3 {
		_, is := receive(listener).(*redis.Subscription)
		Holds("a confirmation", is)
	}
	Equal(Get(client.Publish(ctx, "news", Every()).Result()), int64(2))
	first, second := receive(listener).(*redis.Message), receive(listener).(*redis.Message)
	Equal([]string{first.Payload, second.Payload}, []string{Every(), Every()})
	Equal(first.Pattern+second.Pattern, "n*")
	Equal(Get(client.PubSubNumSub(ctx, "news", "sport").Result()), map[string]int64{"news": 1, "sport": 1})
	channels := Get(client.PubSubChannels(ctx, "*").Result())
	sort.Strings(channels)
	Equal(channels, []string{"news", "sport"})
	Good(listener.Ping(ctx, "still here"))
	Equal(receive(listener).(*redis.Pong).Payload, "still here")
	Good(listener.Unsubscribe(ctx))
	Good(listener.PUnsubscribe(ctx))
	for range 3 {
		receive(listener)
	}
	Equal(Get(client.Publish(ctx, "news", "nobody").Result()), int64(0))
	shards := client.SSubscribe(ctx, "shard")
	receive(shards)
	Equal(Get(client.SPublish(ctx, "shard", "piece").Result()), int64(1))
	Equal(receive(shards).(*redis.Message).Payload, "piece")
	Good(shards.Close())
}

func transactions() {
	client := connect(redis.Options{})
	pipe := client.TxPipeline()
	pipe.Set(ctx, "t", 1, 0)
	incr, get := pipe.Incr(ctx, "t"), pipe.Get(ctx, "t")
	Get(pipe.Exec(ctx))
	Equal(incr.Val(), int64(2))
	Equal(get.Val(), "2")
	set := func(value int) func(redis.Pipeliner) error {
		return func(pipe redis.Pipeliner) error { return pipe.Set(ctx, "t", value, 0).Err() }
	}
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		Good(client.Set(ctx, "t", 10, 0).Err())
		_, err := tx.TxPipelined(ctx, set(99))
		return err
	}, "t")
	Equal(err, redis.TxFailedErr)
	Good(client.Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, set(20))
		return err
	}, "t"))
	Equal(Get(client.Get(ctx, "t").Result()), "20")
	Good(client.Set(ctx, "text", "x", 0).Err())
	pipe = client.TxPipeline()
	pipe.Set(ctx, "t", 1, 0)
	incr, get = pipe.Incr(ctx, "text"), pipe.Get(ctx, "t")
	_, err = pipe.Exec(ctx)
	Fails(err, "not an integer")
	Fails(incr.Err(), "not an integer")
	Equal(get.Val(), "1")
	_, err = client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t", 2, 0)
		pipe.Do(ctx, "NOPE")
		return nil
	})
	Fails(err)
	Equal(Get(client.Get(ctx, "t").Result()), "1")
}

func caching() {
	other := connect(redis.Options{})
	client := connect(redis.Options{ClientSideCacheConfig: &redis.ClientSideCacheConfig{}})
	Good(other.FlushAll(ctx).Err())
	Good(other.Set(ctx, "cached", "old", 0).Err())
	get := func() string {
		value, err := client.Get(ctx, "cached").Result()
		if !errors.Is(err, redis.Nil) {
			Good(err)
		}
		return value
	}
	Until("it is cached", func() bool { return get() == "old" && client.CSCStats().Hits > 0 })
	Good(other.Set(ctx, "cached", "new", 0).Err())
	Until("the change is seen", func() bool { return get() == "new" })
	Good(other.Set(ctx, "cached", "short", 100*time.Millisecond).Err())
	Until("it is read again", func() bool { return get() == "short" })
	Until("expiry is seen", func() bool { return get() == "" })
	Good(other.Set(ctx, "cached", "last", 0).Err())
	Until("it is there again", func() bool { return get() == "last" })
	Good(other.FlushAll(ctx).Err())
	Until("a flush is seen", func() bool { return get() == "" })
}

func reconnect() {
	client := connect(redis.Options{})
	Good(client.Set(ctx, "before", "x", 0).Err())
	listener := client.Subscribe(ctx, "again")
	receive(listener)
	messages := listener.Channel()
	Restart()
	Until("it is connected again", func() bool { return client.Set(ctx, "after", "y", 0).Err() == nil })
	Equal(Get(client.Get(ctx, "after").Result()), "y")
	Until("the subscription is back", func() bool { return client.Publish(ctx, "again", "x").Val() == 1 })
	Equal((<-messages).Payload, "x")
}

func password() {
	locked := Address("LOCKED")
	Equal(Get(connect(redis.Options{Addr: locked, Password: "secret"}).Ping(ctx).Result()), "PONG")
	Fails(connect(redis.Options{Addr: locked, Password: "wrong"}).Ping(ctx).Err(), "invalid username-password pair")
	Fails(connect(redis.Options{Addr: locked}).Ping(ctx).Err(), "NOAUTH")
}

func cluster() {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{Address("CLUSTER")}})
	for number := range 300 {
		Good(client.Set(ctx, fmt.Sprint("cluster-", number), number, 0).Err())
	}
	pipe := client.Pipeline()
	var gets []*redis.StringCmd
	for number := range 300 {
		gets = append(gets, pipe.Get(ctx, fmt.Sprint("cluster-", number)))
	}
	Get(pipe.Exec(ctx))
	for number, get := range gets {
		Equal(Get(get.Result()), strconv.Itoa(number))
	}
	Good(client.MSet(ctx, "{tag}a", "1", "{tag}b", "2").Err())
	Equal(Get(client.MGet(ctx, "{tag}a", "{tag}b").Result()), []any{"1", "2"})
	Fails(client.MGet(ctx, "a", "b").Err(), "Keys in request don't hash to the same slot")
	transaction := client.TxPipeline()
	transaction.Set(ctx, "{tag}a", 3, 0)
	sum := transaction.IncrBy(ctx, "{tag}a", 4)
	Get(transaction.Exec(ctx))
	Equal(sum.Val(), int64(7))
	for number := range 10 {
		channel := fmt.Sprint("shard-", number)
		listener := client.SSubscribe(ctx, channel)
		receive(listener)
		Equal(Get(client.SPublish(ctx, channel, number).Result()), int64(1))
		Equal(receive(listener).(*redis.Message).Payload, strconv.Itoa(number))
		Good(listener.SUnsubscribe(ctx, channel))
		receive(listener)
		Equal(Get(client.SPublish(ctx, channel, number).Result()), int64(0))
		Good(listener.Close())
	}
	masters := make(chan string, 10)
	Good(client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		masters <- master.Options().Addr
		return master.Ping(ctx).Err()
	}))
	Equal(len(masters), 3)
}

func main() {
	Run([]Part{
		{"handshake", handshake}, {"strings", stringValues}, {"expiry", expiry}, {"binary", binary},
		{"pipeline", pipeline}, {"scan", scan}, {"pubsub", pubsub}, {"transactions", transactions},
		{"caching", caching}, {"reconnect", reconnect}, {"password", password}, {"cluster", cluster},
	})
}
