// An origin for tests, on loopback and a free port.

import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http'

export type Answer = (incoming: IncomingMessage, response: ServerResponse, count: number) => void

/** An origin that counts. */
export class Origin {
  readonly #server: HttpServer
  count = 0
  answer: Answer = (_incoming, response, count) => response.writeHead(200, { 'cache-control': 'public, max-age=60' }).end(`answer ${count}`)

  constructor() {
    this.#server = createServer((incoming, response) => this.answer(incoming, response, this.count += 1))
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
