// Errors of the sockets below the client, and of the client itself about what comes from them.

import type { Duplex } from 'node:stream'
import type { Redis } from 'iovalkey'
import { asError } from './errors.js'

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
    return guardData(stream).on('error', ignore)
  }
  if (connectToSentinel !== undefined) connector.connectToSentinel = (...args) => guardBegun(connectToSentinel.apply(connector, args))
  return redis
}

/** A client throws where it is told something else than it has asked for: such a connection is ended. */
function guardData(stream: Duplex): Duplex {
  const { prependListener } = stream
  stream.prependListener = (event: string | symbol, listener: (...args: any[]) => void) => prependListener.call(stream, event, event !== 'data' ? listener : (...args) => {
    try {
      listener(...args)
    } catch (error) {
      stream.destroy(asError(error))
    }
  })
  return stream
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
