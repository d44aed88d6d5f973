// What is sent to a server.

import type { Redis } from 'iovalkey'

export type Argument = string | Buffer | number
export type Command = readonly [name: string, ...args: Argument[]]

/** Sends commands in one piece. The first answer that is an error is thrown. */
export async function exec(redis: Redis, commands: readonly Command[]): Promise<unknown[]> {
  const pipeline = redis.pipeline()
  for (const [name, ...args] of commands) pipeline.callBuffer(name, ...args)
  const answers = await pipeline.exec() ?? []
  return answers.map(([error, value]) => {
    if (error) throw error
    return value
  })
}

/** Ends a connection at once: by itself, the client gives a server that doesn't answer another 2 s, and has a timer for it. */
export function end(redis: Redis): void {
  // There is none before it has begun to connect.
  const stream = redis.stream as Redis['stream'] | undefined
  if (stream === undefined) redis.disconnect()
  else stream.destroy()
}
