// Handles errors of the client's sockets and of the client's parser that would otherwise be uncaught.

import type { Duplex } from 'node:stream'
import type { Redis } from 'iovalkey'
import { asError } from './errors.js'

interface Connector {
  stream?: Duplex
  connect(...args: unknown[]): Promise<Duplex>
  connectToSentinel?(...args: unknown[]): Redis
}

/**
 * Adds a listener for every error of a client's socket; an error without a listener would end the process. The client registers two one-time listeners, but a
 * TLS socket may emit more errors: first for the certificate, then for the server's alert about the aborted handshake.
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

/** Closes the connection if the client throws on unexpected data. */
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

/** Guards the client of a sentinel. It starts to connect in the tick after its creation, before the callback that is queued here. */
function guardBegun(redis: Redis): Redis {
  const { connector } = redis as unknown as { readonly connector: Connector }
  process.nextTick(() => connector.stream?.on('error', ignore))
  return guardSockets(redis)
}

function ignore(): void {
  // The client handles the first error, and closes the socket.
}
