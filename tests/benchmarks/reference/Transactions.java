import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers that run one transaction after the other: prints how many seconds each commit took. */
public class Transactions {
    static final int PARTITIONS = 6;
    static final int RECORD_BYTES = 100;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1];
        int producers = Integer.parseInt(arguments[2]), records = Integer.parseInt(arguments[3]);
        int transactions = Integer.parseInt(arguments[4]), warm = Integer.parseInt(arguments[5]);
        List<Teller> tellers = new ArrayList<>();
        for (int n = 0; n < producers; n++) {
            tellers.add(new Teller(bootstrap, topic, records, transactions));
        }
        for (Teller teller : tellers) {
            teller.warm(warm);
        }
        System.out.println("ready");
        System.in.read();
        for (Teller teller : tellers) {
            teller.start();
        }
        for (Teller teller : tellers) {
            teller.join();
        }
        for (Teller teller : tellers) {
            for (double seconds : teller.taken) {
                System.out.println(seconds);
            }
        }
        System.out.println("done");
        System.exit(0);
    }

    static class Teller extends Thread {
        final KafkaProducer<byte[], byte[]> producer;
        final String topic;
        final int records, transactions;
        final double[] taken;

        Teller(String bootstrap, String topic, int records, int transactions) {
            this.topic = topic;
            this.records = records;
            this.transactions = transactions;
            taken = new double[transactions];
            Properties conf = new Properties();
            conf.put("bootstrap.servers", bootstrap);
            conf.put("transactional.id", "java-" + java.util.UUID.randomUUID());
            producer = new KafkaProducer<>(conf, new ByteArraySerializer(), new ByteArraySerializer());
            producer.initTransactions();
        }

        void warm(int count) {
            for (int number = 0; number < count; number++) {
                transact(number);
            }
        }

        @Override
        public void run() {
            for (int number = 0; number < transactions; number++) {
                taken[number] = transact(number);
            }
        }

        double transact(int number) {
            producer.beginTransaction();
            for (int n = 0; n < records; n++) {
                producer.send(new ProducerRecord<>(topic, (number + n) % PARTITIONS, null, new byte[RECORD_BYTES]));
            }
            long begun = System.nanoTime();
            producer.commitTransaction();
            return (System.nanoTime() - begun) / 1e9;
        }
    }
}
