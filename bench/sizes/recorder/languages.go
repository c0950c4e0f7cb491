package recorder

import (
	"fmt"
	"strings"
)

// javaClasses returns sources that use the library.
func javaClasses(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		var b strings.Builder
		fmt.Fprintf(&b, "package made;\n\nimport java.util.*;\nimport java.util.stream.*;\n\npublic class Made%03d {\n", i)
		for j := range 8 {
			fmt.Fprintf(&b, "\tMap<String, List<Integer>> make%d(int n) {\n\t\treturn IntStream.range(0, n).boxed().filter(i -> i %% %d == 0)"+
				".collect(Collectors.groupingBy(i -> \"k\" + i %% %d, TreeMap::new, Collectors.toList()));\n\t}\n", j, j+2, i+2)
		}
		fmt.Fprintf(&b, "\tint use() { return new Made%03d().make0(%d).size(); }\n}\n", (i+1)%n, i)
		files[fmt.Sprintf("made/Made%03d.java", i)] = b.String()
	}
	return files
}

const (
	javac = "javac -J-XX:ActiveProcessorCount=$CPUS -d out made/*.java"
	java  = "java -XX:ActiveProcessorCount=$CPUS "
)

// parallelJava counts primes in a pool of as many threads as there are CPUs, and fills its heap.
const parallelJava = `import java.util.*;
import java.util.stream.*;

class Main {
	public static void main(String[] args) {
		int n = Integer.parseInt(args[0]);
		long primes = IntStream.range(2, n).parallel().filter(i -> {
			for (int j = 2; (long) j * j <= i; j++) if (i % j == 0) return false;
			return true;
		}).count();
		List<String> kept = new ArrayList<>();
		for (int i = 0; i < n / 10; i++) kept.add("number " + i);
		System.out.println(primes + kept.size());
	}
}
`

// javaWorks compile and run Java.
func javaWorks() (list []work) {
	for _, c := range []struct {
		target  string
		classes int
	}{{"//java/api", 3}, {"//java/model", 25}, {"//java/server", 120}, {"//java/app", 300}} {
		list = append(list, work{kind: "Javac", target: c.target, script: javac, wide: true, files: func(round int) map[string]string {
			return javaClasses(grown(c.classes, round))
		}})
	}
	for _, c := range []struct {
		target string
		n      int
	}{{"//java/model:test", 300_000}, {"//java/server:test", 4_000_000}} {
		list = append(list, work{
			kind: "JavaTest", target: c.target, wide: true, script: fmt.Sprintf("%sMain.java $((%d + %d * $ROUND))", java, c.n, c.n/30),
			files: func(int) map[string]string { return map[string]string{"Main.java": parallelJava} },
		})
	}
	return list
}

// nodeSetup installs packages of npm.
const nodeSetup = `
cd "$SHARED"
echo '{"private": true}' >package.json
npm install --no-audit --no-fund --ignore-scripts webpack@5.99.9 webpack-cli@6.0.1 terser@5.39.0 typescript@5.8.3 \
	lodash-es@4.17.21 react@18.3.1 react-dom@18.3.1 @types/react@18.3.20 @types/lodash-es@4.17.12
`

// webpackConfig has webpack minimise with as many workers as there are CPUs.
const webpackConfig = `const Terser = require(process.env.SHARED + "/node_modules/terser-webpack-plugin");
const cpus = +process.env.CPUS;
module.exports = {
	entry: { a: "./a.js", b: "./b.js", c: "./c.js", d: "./d.js" },
	resolve: { modules: [process.env.SHARED + "/node_modules"] },
	resolveLoader: { modules: [process.env.SHARED + "/node_modules"] },
	optimization: { minimizer: [new Terser({ parallel: cpus > 1 ? cpus - 1 : false })] },
};
`

// nodeWorks bundle, minify and check JavaScript.
func nodeWorks() []work {
	const webpack = `node "$SHARED/node_modules/webpack/bin/webpack.js" --mode `
	files := func(round int) map[string]string {
		more, typed := "", ""
		for i := range round * 20 {
			more += fmt.Sprintf("export const grown%d = (a) => a + %d;\n", i, i)
			typed += fmt.Sprintf("export const grown%d = (a: number): number => a + %d;\n", i, i)
		}
		return map[string]string{
			"webpack.config.js": webpackConfig,
			"a.js":              "import * as lodash from \"lodash-es\";\nconsole.log(lodash);\n" + more,
			"b.js":              "import * as react from \"react\";\nimport * as dom from \"react-dom/client\";\nconsole.log(react, dom);\n" + more,
			"c.js":              "import { debounce, merge } from \"lodash-es\";\nconsole.log(debounce, merge);\n" + more,
			"d.js":              "import * as server from \"react-dom\";\nconsole.log(server);\n" + more,
			"a.ts":              "import { useState } from \"react\";\nimport { merge } from \"lodash-es\";\nexport const make = () => useState(merge({ a: 1 }, { b: 2 }));\n" + typed,
		}
	}
	return []work{
		{kind: "Webpack", target: "//web:release", setup: nodeSetup, files: files, wide: true, script: webpack + "production"},
		{kind: "Webpack", target: "//web:debug", setup: nodeSetup, files: files, wide: true, script: webpack + "development"},
		{
			kind: "Minify", target: "//web:react", setup: nodeSetup, wide: true,
			script: `node "$SHARED/node_modules/terser/bin/terser" -c -m -o made.js "$SHARED/node_modules/react-dom/cjs/react-dom.development.js"`,
		},
		{
			kind: "TsCheck", target: "//web:types", setup: nodeSetup, files: files, wide: true,
			script: `ln -s "$SHARED/node_modules" . && node node_modules/typescript/bin/tsc --noEmit --strict --moduleResolution bundler --module esnext --target es2022 --skipLibCheck a.ts`,
		},
	}
}

// pythonMade makes records, and groups and sorts them.
const pythonMade = `import collections, json, sys
n = int(sys.argv[1])
records = [{"id": i, "name": "name %d" % (i * 7919 % n), "tags": [str(i % 17), str(i % 5)]} for i in range(n)]
groups = collections.defaultdict(list)
for r in json.loads(json.dumps(records)):
    groups[r["tags"][0]].append(r)
print(sum(len(sorted(g, key=lambda r: r["name"])) for g in groups.values()))
`

// pythonWide hashes in as many processes as there are CPUs.
const pythonWide = `import hashlib, multiprocessing, os, sys

def work(i):
    h = hashlib.sha256()
    for j in range(60000):
        h.update(b"%d %d" % (i, j))
    return h.hexdigest()

if __name__ == "__main__":
    with multiprocessing.Pool(int(os.environ["CPUS"])) as pool:
        print(pool.map(work, range(int(sys.argv[1])), 1)[-1])
`

// pythonWorks run Python.
func pythonWorks() []work {
	const python = "python3 -I -B "
	files := func(int) map[string]string { return map[string]string{"made.py": pythonMade, "wide.py": pythonWide} }
	made := func(kind, target string, n int) work {
		return work{kind: kind, target: target, files: files, script: fmt.Sprintf("%smade.py $((%d + %d * $ROUND))", python, n, n/30)}
	}
	return []work{
		made("Genrule", "//data:small", 3_000), made("Genrule", "//data:table", 120_000), made("Genrule", "//data:large", 700_000),
		{kind: "PyTest", target: "//data:hash_test", files: files, wide: true, script: python + "wide.py $((24 + $ROUND))"},
		{
			kind: "PyCompile", target: "//tools:scripts",
			script: `cp -r "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/email" . && ` +
				`cp -r "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/json" . && python3 -m compileall -q -f -o 0 email json`,
		},
	}
}
