import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/**
 * Runs Kafka's command line tools one after the other in one JVM, which saves each its start:
 * {@code Host JAR...}. A line on standard input is a call: standard input, class and arguments, each in base64. The line
 * that answers is exit code, standard output and standard error. The jars hold the tools: each call loads them anew, as
 * they keep state in static fields.
 */
public final class Host {
    private static final PrintStream ANSWERS = System.out;
    private static volatile OutputStream out = OutputStream.nullOutputStream();
    private static volatile OutputStream err = OutputStream.nullOutputStream();
    private static volatile Integer ended;
    private static final List<Runnable> HOOKS = new ArrayList<>();

    private Host() {
    }

    /** What a tool throws instead of ending the JVM. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;

        Ended(int code) {
            super("exit " + code);
        }
    }

    /** Takes the place of what ends the JVM, in Kafka's class for that, which has moved between releases. */
    private static void takeExits() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException e) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        for (Method set : exit.getMethods()) {
            switch (set.getName()) {
                case "setExitProcedure", "setHaltProcedure", "setShutdownHookAdder" -> {
                    Class<?> kind = set.getParameterTypes()[0];
                    set.invoke(null, Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, (proxy, method, args) -> {
                        if (args[0] instanceof Integer code) {
                            end(code);
                        }
                        HOOKS.add((Runnable) args[1]);
                        return null;
                    }));
                }
                default -> { }
            }
        }
    }

    /** The first call counts: some tools catch everything, their own end too. */
    private static void end(int code) {
        if (ended == null) {
            ended = code;
        }
        throw new Ended(code);
    }

    /** Writes to the buffer of the call that runs now. */
    private static PrintStream forward(boolean errors) {
        return new PrintStream(new OutputStream() {
            @Override
            public void write(int b) {
                write(new byte[] {(byte) b}, 0, 1);
            }

            @Override
            public void write(byte[] b, int from, int length) {
                try {
                    (errors ? err : out).write(b, from, length);
                } catch (java.io.IOException e) {
                    throw new IllegalStateException(e);
                }
            }
        }, true, StandardCharsets.UTF_8);
    }

    public static void main(String[] jars) throws Exception {
        System.setOut(forward(false));
        System.setErr(forward(true));
        takeExits();
        URL[] urls = Arrays.stream(jars).map(Host::url).toArray(URL[]::new);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> call = new ArrayList<>();
            for (String part : line.split(" ", -1)) {
                call.add(new String(Base64.getDecoder().decode(part), StandardCharsets.UTF_8));
            }
            ByteArrayOutputStream saidOut = new ByteArrayOutputStream();
            ByteArrayOutputStream saidErr = new ByteArrayOutputStream();
            out = saidOut;
            err = saidErr;
            ended = null;
            int code = run(urls, call);
            System.out.flush();
            System.err.flush();
            Base64.Encoder encoder = Base64.getEncoder();
            ANSWERS.println(code + " " + encoder.encodeToString(saidOut.toByteArray()) + " " + encoder.encodeToString(saidErr.toByteArray()));
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static URL url(String jar) {
        try {
            return Path.of(jar).toUri().toURL();
        } catch (java.net.MalformedURLException e) {
            throw new IllegalArgumentException(e);
        }
    }

    private static int run(URL[] urls, List<String> call) {
        InputStream before = System.in;
        System.setIn(new ByteArrayInputStream(call.get(0).getBytes(StandardCharsets.UTF_8)));
        try (URLClassLoader loader = new URLClassLoader(urls, Host.class.getClassLoader())) {
            Class<?> tool = Class.forName(call.get(1), true, loader);
            try {
                tool.getMethod("main", String[].class).invoke(null, (Object) call.subList(2, call.size()).toArray(String[]::new));
            } finally {
                List<Runnable> hooks = List.copyOf(HOOKS);
                HOOKS.clear();
                hooks.forEach(Host::hook);
                jvmHooks();
            }
            return ended == null ? 0 : ended;
        } catch (InvocationTargetException e) {
            if (ended != null) {
                return ended;
            }
            e.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException | java.io.IOException e) {
            e.printStackTrace();
            return 1;
        } finally {
            System.setIn(before);
        }
    }

    /** Some tools have the JVM itself call them at its end; nobody else here does. */
    private static void jvmHooks() throws ReflectiveOperationException {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        for (Object hook : ((Map<?, ?>) field.get(null)).keySet().toArray()) {
            Thread thread = (Thread) hook;
            Runtime.getRuntime().removeShutdownHook(thread);
            thread.run();
        }
    }

    private static void hook(Runnable hook) {
        try {
            hook.run();
        } catch (RuntimeException | Ended e) {
            e.printStackTrace();
        }
    }
}
