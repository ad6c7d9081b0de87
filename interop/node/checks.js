// The checks of kafkajs: its producer, with transactions too, its consumer, which is always in a group, and its admin.
// Prints a line for each check and `done` at the end, as interop/lib.sh wants it.
'use strict'

const assert = require('node:assert/strict')
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const LIMIT_MS = 25_000
const kafka = new Kafka({
  clientId: 'interop',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { retries: 3 },
})
const admin = kafka.admin()

async function check(name, body) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${LIMIT_MS / 1000} s`)), LIMIT_MS)
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

async function makeTopic(topic, numPartitions = 1) {
  await admin.createTopics({ topics: [{ topic, numPartitions }], waitForLeaders: true })
}

async function endOf(topic) {
  const partitions = await admin.fetchTopicOffsets(topic)
  return partitions.reduce((sum, { high }) => sum + Number(high), 0)
}

async function produce(topic, settings, sending) {
  await makeTopic(topic)
  const producer = kafka.producer(settings)
  await producer.connect()
  try {
    for (let batch = 0; batch < 5; batch++) {
      const messages = Array.from({ length: 20 }, (_, i) => ({
        key: `key${i}`,
        value: i % 7 ? `value${batch * 20 + i}` : null,
        headers: { batch: String(batch) },
        timestamp: String(Date.now()),
      }))
      const [answer] = await producer.send({ topic, messages, ...sending })
      if (sending.acks !== 0) assert.equal(answer.baseOffset, String(batch * 20))
    }
  } finally {
    await producer.disconnect()
  }
  while ((await endOf(topic)) < 100); // with acks=0 nobody says when they are there
  assert.equal(await endOf(topic), 100)
}

async function topics() {
  await makeTopic('node-admin', 2)
  assert.equal(await admin.createTopics({ topics: [{ topic: 'node-admin' }] }), false)
  assert((await admin.listTopics()).includes('node-admin'))
  await admin.createPartitions({ topicPartitions: [{ topic: 'node-admin', count: 3 }] })
  const { topics: [found] } = await admin.fetchTopicMetadata({ topics: ['node-admin'] })
  assert.equal(found.partitions.length, 3)
  await admin.deleteTopics({ topics: ['node-admin'] })
  assert(!(await admin.listTopics()).includes('node-admin'))
}

async function configs() {
  await makeTopic('node-configs')
  const resource = { type: ConfigResourceTypes.TOPIC, name: 'node-configs' }
  const configEntries = [{ name: 'retention.ms', value: '54321' }]
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] })
  const { resources: [found] } = await admin.describeConfigs({
    includeSynonyms: true,
    resources: [{ ...resource, configNames: ['retention.ms'] }],
  })
  assert.deepEqual(found.configEntries.map(({ configName, configValue }) => [configName, configValue]), [['retention.ms', '54321']])
}

async function offsets() {
  await produce('node-offsets', {}, {})
  await admin.deleteTopicRecords({ topic: 'node-offsets', partitions: [{ partition: 0, offset: '30' }] })
  const [found] = await admin.fetchTopicOffsets('node-offsets')
  assert.deepEqual([found.low, found.high], ['30', '100'])
  const [first] = await admin.fetchTopicOffsetsByTimestamp('node-offsets', 1000)
  assert.equal(first.offset, '30')
}

// Members of one group; what each is given goes into `seen`, by partition and offset.
async function joins(groupId, topic, seen) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 200, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const joined = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve))
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      seen.set(`${partition}@${message.offset}`, message.value && message.value.toString())
    },
  })
  await joined
  return consumer
}

async function until(what, condition) {
  for (const end = Date.now() + LIMIT_MS; Date.now() < end; ) {
    if (await condition()) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`not so in time: ${what}`)
}

async function send(topic, partitions, count) {
  const producer = kafka.producer()
  await producer.connect()
  const messages = Array.from({ length: count }, (_, i) => ({ partition: i % partitions, value: String(i) }))
  await producer.send({ topic, messages })
  await producer.disconnect()
}

async function group() {
  const topic = 'node-group'
  await makeTopic(topic, 4)
  await send(topic, 4, 40)
  const seen = new Map()
  const one = await joins(topic, topic, seen)
  await until('all are read', () => seen.size === 40)
  const two = await joins(topic, topic, seen)
  await until('both are in', async () => {
    const { groups: [{ state, members }] } = await admin.describeGroups([topic])
    return state === 'Stable' && members.length === 2
  })
  await send(topic, 4, 40)
  await until('all are read by two', () => seen.size === 80)
  await one.disconnect()
  await send(topic, 4, 40)
  await until('all are read by the one that is left', () => seen.size === 120)
  await two.disconnect()
  const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
  assert.deepEqual(partitions.map(({ offset }) => offset), ['30', '30', '30', '30'])
  assert((await admin.listGroups()).groups.some(({ groupId }) => groupId === topic))
  await admin.resetOffsets({ groupId: topic, topic, earliest: true })
  await admin.deleteGroups([topic])
}

async function transactions() {
  const topic = 'node-transactions'
  await makeTopic(topic, 2)
  await makeTopic('node-consumed')
  await send('node-consumed', 1, 10)
  const producer = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  const offset = (number) => ({
    consumerGroupId: 'node-transactional',
    topics: [{ topic: 'node-consumed', partitions: [{ partition: 0, offset: String(number) }] }],
  })
  for (let number = 0; number < 9; number++) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [0, 1].map((partition) => ({ partition, value: `v${number}` })) })
    await transaction.sendOffsets(offset(number))
    if (number % 3 === 2) await transaction.abort()
    else await transaction.commit()
  }
  await producer.disconnect()
  const [found] = await admin.fetchOffsets({ groupId: 'node-transactional', topics: ['node-consumed'] })
  assert.equal(found.partitions[0].offset, '7')
  const seen = new Map() // kafkajs reads what is committed, unless it is told otherwise
  const consumer = await joins(topic, topic, seen)
  await until('the committed ones are read', () => seen.size >= 12)
  await consumer.disconnect()
  const values = [...seen.values()].sort()
  assert.deepEqual(values, ['v0', 'v0', 'v1', 'v1', 'v3', 'v3', 'v4', 'v4', 'v6', 'v6', 'v7', 'v7'])
}

async function main() {
  await admin.connect()
  await check('producer', () => produce('node-plain', {}, {}))
  await check('producer with gzip', () => produce('node-gzip', {}, { compression: CompressionTypes.GZIP }))
  await check('producer with acks=1', () => produce('node-acks-1', {}, { acks: 1 }))
  await check('producer with acks=0', () => produce('node-acks-0', {}, { acks: 0 }))
  await check('idempotent producer', () => produce('node-idempotent', { idempotent: true, maxInFlightRequests: 1 }, {}))
  await check('consumer group of two members, and its admin', group)
  await check('transactional producer with offsets', transactions)
  await check('admin creates, lists, grows and deletes topics', topics)
  await check('admin describes and alters configs', configs)
  await check('admin lists offsets and deletes records', offsets)
  await check('admin describes the cluster', async () => {
    const { brokers, controller } = await admin.describeCluster()
    assert.deepEqual([brokers.length, controller], [1, 0])
  })
  await admin.disconnect()
  console.log('done')
}

main().then(() => process.exit(0))
