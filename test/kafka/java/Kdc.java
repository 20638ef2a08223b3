import java.io.File;
import org.apache.kerby.kerberos.kerb.server.SimpleKdcServer;

/** A KDC of realm EXAMPLE.COM. Arguments: a folder, a port, and names of principals; the keytab of number N is N.keytab there. */
public final class Kdc {
    public static void main(String[] args) throws Exception {
        File dir = new File(args[0]);
        SimpleKdcServer kdc = new SimpleKdcServer();
        kdc.setWorkDir(dir);
        kdc.setKdcRealm("EXAMPLE.COM");
        kdc.setKdcHost("127.0.0.1");
        kdc.setAllowUdp(false);
        kdc.setKdcTcpPort(Integer.parseInt(args[1]));
        kdc.init();
        kdc.start();
        for (int i = 2; i < args.length; i++) {
            kdc.createPrincipal(args[i] + "@EXAMPLE.COM");
            kdc.exportPrincipal(args[i] + "@EXAMPLE.COM", new File(dir, (i - 2) + ".keytab"));
        }
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
