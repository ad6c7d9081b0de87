// kafkajs at every endpoint of a secured broker: produces, consumes in a group, is denied a topic, is refused a login.
// Prints a line for each check and `done` at the end, as interop/lib.sh wants it.
'use strict'

const assert = require('node:assert/strict')
const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const COUNT = 10

function client(endpoint, password = endpoint.password) {
  const ssl = endpoint.ca && {
    ca: [fs.readFileSync(endpoint.ca)],
    cert: endpoint.certificate && fs.readFileSync(endpoint.certificate),
    key: endpoint.key && fs.readFileSync(endpoint.key),
    servername: 'localhost',
  }
  const login = { mechanism: (endpoint.mechanism || '').toLowerCase(), username: endpoint.user, password }
  if (endpoint.token) login.oauthBearerProvider = async () => ({ value: endpoint.token })
  return new Kafka({
    clientId: 'interop',
    brokers: [endpoint.address],
    logLevel: logLevel.NOTHING,
    retry: { retries: 3, initialRetryTime: 50 },
    ssl,
    sasl: endpoint.mechanism && login,
  })
}

async function send(kafka, topic) {
  const producer = kafka.producer()
  await producer.connect()
  try {
    await producer.send({ topic, messages: Array.from({ length: COUNT }, (_, i) => ({ value: `value${i}` })) })
  } finally {
    await producer.disconnect()
  }
}

async function produceAndConsume(endpoint) {
  const kafka = client(endpoint)
  const topic = `${endpoint.topics}node-${endpoint.name}`
  await send(kafka, topic)
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  const values = []
  try {
    await consumer.subscribe({ topic, fromBeginning: true })
    await new Promise((resolve) => {
      consumer.run({
        eachMessage: async ({ message }) => {
          values.push(String(message.value))
          if (values.length === COUNT) resolve()
        },
      })
    })
  } finally {
    await consumer.disconnect()
  }
  assert.deepEqual(values, Array.from({ length: COUNT }, (_, i) => `value${i}`))
}

async function isDenied(endpoint) {
  await assert.rejects(send(client(endpoint), 'forbidden'), /authorized|authorization/i)
}

async function isRefused(endpoint) {
  await assert.rejects(send(client(endpoint, 'wrong'), `${endpoint.topics}x`), /authentication|failed/i)
}

async function check(name, body) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('not done within 20 s')), 20_000)
  })
  try {
    await Promise.race([body(), late])
    console.log(`ok ${name}`)
  } catch (error) {
    console.log(`FAILED ${name}: ${String(error.message).replace(/\s+/g, ' ')}`)
  } finally {
    clearTimeout(timer)
  }
}

async function main() {
  for (const endpoint of JSON.parse(fs.readFileSync(process.argv[2]))) {
    await check(`${endpoint.name}: records`, () => produceAndConsume(endpoint))
    await check(`${endpoint.name}: a topic without an ACL is denied`, () => isDenied(endpoint))
    if (endpoint.password) await check(`${endpoint.name}: a wrong password is refused`, () => isRefused(endpoint))
  }
  console.log('done')
  process.exit(0)
}

main()
