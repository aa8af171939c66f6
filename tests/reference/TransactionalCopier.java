import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic into another exactly once, until it is killed: bootstrap, source, target, records in a transaction.
 * Each transaction has records and the group's offsets behind them; one in eight is aborted and copied again. What an
 * error leaves open is aborted; where that fails too, the producer is made anew under the same transactional id.
 */
public class TransactionalCopier {
    private static final Duration WAIT = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], source = arguments[1], target = arguments[2];
        int batch = Integer.parseInt(arguments[3]);
        while (true) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, source, batch);
                 KafkaProducer<byte[], byte[]> producer = producer(bootstrap, source)) {
                producer.initTransactions();
                say("begins");
                copy(consumer, producer, source, target);
            } catch (KafkaException problem) {
                say("begins anew: " + problem);
                Thread.sleep(200);
            }
        }
    }

    private static void copy(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer,
            String source, String target) {
        List<TopicPartition> places = new ArrayList<>();
        for (PartitionInfo info : consumer.partitionsFor(source, WAIT)) {
            places.add(new TopicPartition(source, info.partition()));
        }
        consumer.assign(places);
        seek(consumer, places);
        for (int number = 1; ; ) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
            if (records.isEmpty()) {
                continue;
            }
            try {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> after = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(target, record.key(), record.value()));
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    after.put(place, new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(after, consumer.groupMetadata());
                if (number++ % 8 == 0) {
                    producer.abortTransaction();
                    seek(consumer, places);
                    continue;
                }
                producer.commitTransaction();
                say("copied " + records.count());
            } catch (KafkaException problem) {
                say("aborts: " + problem);
                producer.abortTransaction();
                seek(consumer, places);
            }
        }
    }

    /** Reads on behind what was committed last. */
    private static void seek(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> places) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(new java.util.HashSet<>(places), WAIT);
        for (TopicPartition place : places) {
            OffsetAndMetadata found = committed.get(place);
            consumer.seek(place, found == null ? 0 : found.offset());
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String source) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", "copier-" + source);
        settings.put("transaction.timeout.ms", "20000");
        settings.put("linger.ms", "5");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String source, int batch) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", "copy-" + source);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", Integer.toString(batch));
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void say(String text) {
        System.out.println(System.currentTimeMillis() + " " + text);
    }
}
