package prefetch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/client"
)

const (
	javac        = "/usr/bin/javac"
	javaPackages = "default-jdk-headless"
)

// javaExpressions use many packages of the JDK, so that the compiler reads them.
func javaExpressions() []string {
	return []string{
		`new java.util.TreeMap<String, java.util.List<Integer>>()`,
		`java.util.stream.IntStream.range(0, 9).boxed().collect(java.util.stream.Collectors.groupingBy(i -> i % 3))`,
		`java.util.concurrent.CompletableFuture.supplyAsync(() -> 1).thenApply(i -> i + 1)`,
		`java.net.http.HttpClient.newBuilder().followRedirects(java.net.http.HttpClient.Redirect.NORMAL).build()`,
		`java.time.ZonedDateTime.now().format(java.time.format.DateTimeFormatter.ISO_INSTANT)`,
		`java.nio.file.Files.walk(java.nio.file.Path.of(".")).filter(java.nio.file.Files::isRegularFile).count()`,
		`javax.xml.parsers.DocumentBuilderFactory.newInstance().newDocumentBuilder()`,
		`javax.crypto.Cipher.getInstance("AES")`,
		`java.sql.DriverManager.getDrivers()`,
		`new javax.swing.table.DefaultTableModel(2, 2)`,
		`java.util.logging.Logger.getLogger("a").getParent()`,
		`java.util.regex.Pattern.compile("a").matcher("a").results().count()`,
		`java.security.KeyPairGenerator.getInstance("RSA")`,
		`new java.math.BigDecimal(1).setScale(2, java.math.RoundingMode.UP)`,
		`java.lang.management.ManagementFactory.getPlatformMBeanServer()`,
		`java.util.ServiceLoader.load(Runnable.class).findFirst()`,
		`javax.net.ssl.SSLContext.getDefault()`,
		`java.util.prefs.Preferences.userRoot()`,
		`java.lang.invoke.MethodHandles.lookup().lookupClass()`,
		`java.util.zip.ZipFile.class.getModule().getDescriptor()`,
	}
}

// javacWork compiles sources with the machine's JDK, which is in the input root.
func javacWork(ctx context.Context, b *prefetchBench) (*workload, error) {
	if err := needs(javac, javaPackages); err != nil {
		return nil, err
	}
	program, err := filepath.EvalSymlinks(javac)
	if err != nil {
		return nil, err
	}
	home := filepath.Dir(filepath.Dir(program))
	if _, err := os.Stat(filepath.Join(home, "lib", "modules")); err != nil {
		return nil, lack(fmt.Sprintf("%s is no JDK with lib/modules (apt-get install %s)", home, javaPackages))
	}
	// Debian has the JDK's configuration below /etc, of which commands see only a part.
	staged, err := b.stage(workJavac, home, func(p string) bool {
		top, _, _ := strings.Cut(p, "/")
		return slices.Contains([]string{"bin", "conf", "lib", "release"}, top) && filepath.Base(p) != "src.zip"
	})
	if err != nil {
		return nil, err
	}
	files, list := map[string]string{}, ""
	for i, expression := range javaExpressions() {
		name := fmt.Sprintf("Made%02d", i)
		files[name+".java"] = fmt.Sprintf(
			"package made;\n\npublic class %s {\n\tstatic Object make() throws Exception { return %s; }\n}\n", name, expression)
		list += "src/" + name + ".java\n"
	}
	files["list"] = list
	dir, err := b.sources(workJavac, files)
	if err != nil {
		return nil, err
	}
	return b.store(ctx, job{
		name: "javac", mnemonic: "Javac", mounts: []client.Mount{{Prefix: "jdk", Dir: staged}, {Prefix: "src", Dir: dir}},
		command: testbed.NewCommand([]string{"jdk/bin/javac", "-d", "out", "@src/list"}, "out", "PATH=/usr/bin:/bin"),
	})
}
