// An origin for tests, on loopback and a free port.

import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'

export type Answer = (incoming: IncomingMessage, response: ServerResponse, count: number) => void

/** An origin that counts its requests. */
export class Origin {
  readonly #server: HttpServer
  count = 0
  answer: Answer = (_incoming, response, count) => response.writeHead(200, { 'cache-control': 'public, max-age=60' }).end(`answer ${count}`)

  constructor() {
    this.#server = createServer((incoming, response) => this.answer(incoming, response, this.count += 1))
  }

  /** The sockets of this many upgrades. None is answered before the last has arrived. */
  upgraded(count: number): Promise<Duplex[]> {
    const sockets: Duplex[] = []
    return new Promise((resolve) => this.#server.on('upgrade', (_incoming, socket) => {
      if (sockets.push(socket) < count) return
      for (const one of sockets) one.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: chat\r\n\r\n')
      resolve(sockets)
    }))
  }

  async listen(): Promise<string> {
    await once(this.#server.listen(0, '127.0.0.1'), 'listening')
    return `http://127.0.0.1:${(this.#server.address() as { port: number }).port}`
  }

  close(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }
}
