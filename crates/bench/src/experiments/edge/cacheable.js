// Node's own HTTP server, which reads Redis for every request.
"use strict";
const { createServer } = require("node:http");
const { createClient } = require("redis");

const redis = createClient({ url: `redis://127.0.0.1:${process.env.REDIS_PORT}` });

const server = createServer(async (request, response) => {
  const value = await redis.get("/cacheable");
  response.writeHead(200, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(value) });
  response.end(value);
});

redis.connect().then(() => server.listen(Number(process.env.PORT), "127.0.0.1", 4096));
