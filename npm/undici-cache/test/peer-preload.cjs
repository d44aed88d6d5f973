// Preload for the tests of undici-cache-redis: loads this package in place of theirs, the undici that they were written for, and servers on free ports.

const Module = require('node:module')
const net = require('node:net')

const ports = JSON.parse(process.env.PORTS)
const switched = /^\.\.\/(index(\.js)?|lib\/redis-cache-store(\.js)?)$/

const resolve = Module._resolveFilename
Module._resolveFilename = (request, parent, ...more) => {
  const isPeer = parent?.filename?.includes('/undici-cache-redis/')
  if (isPeer && switched.test(request)) return process.env.SWITCHED_TO
  return resolve(isPeer && request === 'undici' ? 'undici-as-of-peer' : request, parent, ...more)
}

const { connect } = net.Socket.prototype
net.Socket.prototype.connect = function (...args) {
  const options = Array.isArray(args[0]) ? args[0][0] : args[0]
  if (ports[options?.port] !== undefined) options.port = ports[options.port]
  return connect.apply(this, args)
}
