// Errors of the sockets below the client.

import type { Duplex } from 'node:stream'
import type { Redis } from 'iovalkey'

interface Connector {
  stream?: Duplex
  connect(...args: unknown[]): Promise<Duplex>
  connectToSentinel?(...args: unknown[]): Redis
}

/**
 * Sees to it that no error of a client's socket is left without a listener, which would end the process. The client listens twice and once each time, but a TLS
 * socket may have more to say: its own verdict on a certificate, and then the server's alert about a handshake that was cut short.
 */
export function guardSockets(redis: Redis): Redis {
  const { connector } = redis as unknown as { readonly connector: Connector }
  const { connect, connectToSentinel } = connector
  connector.connect = async (...args) => {
    const stream = await connect.apply(connector, args)
    return stream.on('error', ignore)
  }
  if (connectToSentinel !== undefined) connector.connectToSentinel = (...args) => guardBegun(connectToSentinel.apply(connector, args))
  return redis
}

/** The client of a sentinel connects as soon as it is made: in the next tick, before this one. */
function guardBegun(redis: Redis): Redis {
  const { connector } = redis as unknown as { readonly connector: Connector }
  process.nextTick(() => connector.stream?.on('error', ignore))
  return guardSockets(redis)
}

function ignore(): void {
  // The client hears the first error, and closes.
}
