# A Sinatra application that reads Redis for every request.
require "sinatra/base"
require "redis"

class Cacheable < Sinatra::Base
  set :environment, :production
  set :logging, false

  def self.redis
    Thread.current[:redis] ||= Redis.new(host: "127.0.0.1", port: Integer(ENV.fetch("REDIS_PORT")))
  end

  get "/cacheable" do
    content_type "application/json"
    self.class.redis.get("/cacheable")
  end
end

run Cacheable
