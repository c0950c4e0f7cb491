package recorder

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A work is a command to measure. Its script runs in a new folder with its files.
type work struct {
	kind, target string
	script       string
	// setup is a script that makes what works share, once for all works with the same script.
	setup string
	// files returns contents by file name; each round has slightly different ones. Nil: none.
	files func(round int) map[string]string
	// wide: it uses more than one CPU. If it does not, it takes at least its CPU time.
	wide bool
}

// works returns all works.
func works() []work {
	return slices.Concat(cxxWorks(), linkWorks(), goWorks(), javaWorks(), nodeWorks(), pythonWorks(), packWorks(), testWorks())
}

// lay makes a new folder below dir with the files of a round.
func (w work) lay(dir string, round int) (string, error) {
	dir, err := os.MkdirTemp(dir, "work-")
	if err != nil || w.files == nil {
		return dir, err
	}
	for name, text := range w.files(round) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// grown returns n, a few percent more for each round.
func grown(n, round int) int { return n + n*round*3/100 + round }

// A unit is a C++ source.
type unit struct {
	target    string
	headers   string // space-separated
	extra     string // text after the headers
	options   string
	functions int // how many are generated
}

// cxxUnits have headers from the standard library and from Boost.
var cxxUnits = []unit{
	{"//base:clock", "chrono", "", "-O0", 4},
	{"//base:names", "string vector", "", "-O0", 10},
	{"//base:table", "unordered_map", "", "-O1", 20},
	{"//base:sort", "algorithm numeric", "", "-O2", 30},
	{"//base:async", "future functional memory", "int later() { return std::async([] { return 1; }).get(); }", "-O1", 12},
	{"//base:ranges", "ranges", "int odd(std::vector<int> &v) { int n = 0; for (int i : v | std::views::filter([](int i) { return i % 2; })) n += i; return n; }", "-O1", 10},
	{"//text:match", "regex", `bool match(const std::string &s) { static const std::regex r("(a|b)+[0-9]*"); return std::regex_search(s, r); }`, "-O1", 6},
	{"//text:matches", "regex", `bool match(const std::string &s) { static const std::regex r("(a|b)+[0-9]*"); return std::regex_search(s, r); }`, "-O2 -g", 40},
	{"//text:format", "boost/format.hpp", `std::string say(int i) { return (boost::format("%1% %2%") % i % "a").str(); }`, "-O1", 10},
	{"//text:cast", "boost/lexical_cast.hpp", `int number(const std::string &s) { return boost::lexical_cast<int>(s); }`, "-O0", 8},
	{"//text:grammar", "boost/spirit/include/qi.hpp", `namespace qi = boost::spirit::qi;
bool numbers(const std::string &s, std::vector<double> &v) { auto i = s.begin(); return qi::phrase_parse(i, s.end(), qi::double_ >> *(',' >> qi::double_), qi::space, v); }`, "-O1", 4},
	{"//config:tree", "boost/property_tree/json_parser.hpp sstream", `boost::property_tree::ptree tree(const std::string &s) { std::istringstream in(s); boost::property_tree::ptree t; boost::property_tree::read_json(in, t); return t; }`, "-O1", 6},
	{"//config:xml", "boost/property_tree/xml_parser.hpp sstream", `boost::property_tree::ptree tree(const std::string &s) { std::istringstream in(s); boost::property_tree::ptree t; boost::property_tree::read_xml(in, t); return t; }`, "-O2", 6},
	{"//index:graph", "boost/graph/adjacency_list.hpp boost/graph/dijkstra_shortest_paths.hpp", "typedef boost::adjacency_list<> graph; unsigned long edges(const graph &g) { return boost::num_edges(g); }", "-O1", 10},
	{"//index:shapes", "boost/geometry.hpp boost/geometry/geometries/point_xy.hpp", "typedef boost::geometry::model::d2::point_xy<double> point; double away(point a, point b) { return boost::geometry::distance(a, b); }", "-O0", 4},
	{"//net:loop", "utility boost/asio.hpp", "void loop() { boost::asio::io_context c; c.run(); }", "-O0", 4},
	{"//net:client", "utility boost/asio.hpp boost/asio/steady_timer.hpp", "void loop() { boost::asio::io_context c; boost::asio::steady_timer t(c); t.async_wait([](auto) {}); boost::asio::ip::tcp::socket s(c); s.close(); c.run(); }", "-O2 -g", 12},
	{"//net:http", "boost/beast.hpp", "int status() { boost::beast::http::response<boost::beast::http::string_body> r; return r.result_int(); }", "-O0", 4},
}

// cxxWorks compile one source each.
func cxxWorks() (list []work) {
	for _, u := range cxxUnits {
		list = append(list, work{
			kind: "CppCompile", target: u.target,
			script: "g++ -std=c++20 " + u.options + " -c -o made.o unit.cc",
			files: func(round int) map[string]string {
				return map[string]string{"unit.cc": cxxUnit(u, grown(u.functions, round))}
			},
		})
	}
	for i, n := range []int{5, 40, 200} {
		list = append(list, work{
			kind: "CCompile", target: fmt.Sprintf("//sys:unit%d", i), script: "gcc -O2 -c -o made.o unit.c",
			files: func(round int) map[string]string {
				return map[string]string{"unit.c": cUnit(i, grown(n, round))}
			},
		})
	}
	return list
}

// cxxUnit returns a source with a number of functions, each with types of its own.
func cxxUnit(u unit, functions int) string {
	var b strings.Builder
	for h := range strings.FieldsSeq(u.headers + " algorithm map string vector") {
		fmt.Fprintf(&b, "#include <%s>\n", h)
	}
	b.WriteString(u.extra + "\ntemplate <int N> struct key { int v; bool operator<(const key &o) const { return v < o.v; } };\n")
	for i := range functions {
		fmt.Fprintf(&b, `int f%[1]d(int n) {
	std::vector<key<%[1]d>> v;
	for (int i = 0; i < n; i++) v.push_back({i * %[1]d %% 7});
	std::sort(v.begin(), v.end());
	std::map<key<%[1]d>, std::string> m;
	for (auto &k : v) m[k] += std::to_string(k.v);
	return m.size();
}
`, i)
	}
	return b.String()
}

// cUnit returns the C source number i.
func cUnit(i, functions int) string {
	var b strings.Builder
	b.WriteString("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
	for f := range functions {
		fmt.Fprintf(&b, "int g%d_%d(const char *s, int n) {\n\tint sum = %d;\n\tfor (int i = 0; i < n; i++)\n"+
			"\t\tif (s[i] == %d || strchr(s + i, 'a')) sum += printf(\"%%d\\n\", i);\n\treturn sum;\n}\n", i, f, f, f%100)
	}
	return b.String()
}

// linkSetup compiles what is linked: sources with debug information, and the same for optimising at
// link time.
const linkSetup = `
for i in 0 1 2 3 4 5 6 7; do
	{
		echo "#include <map>"; echo "#include <regex>"; echo "#include <string>"
		echo "template <int N> struct key { int v; bool operator<(const key &o) const { return v < o.v; } };"
		for j in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
			echo "int f${i}_$j(int n) { std::map<key<1${i}00 + $j>, std::string> m; m[{n}] = \"a\"; static const std::regex r(\"a$j\"); return std::regex_match(m[{n}], r); }"
		done
	} >u$i.cc
	g++ -std=c++20 -g -c -o "$SHARED/u$i.o" u$i.cc
	g++ -std=c++20 -O2 -flto -c -o "$SHARED/lto$i.o" u$i.cc
done
`

// linkWorks link and archive.
func linkWorks() []work {
	main := func(round int) map[string]string {
		return map[string]string{"main.cc": fmt.Sprintf("int f0_%[1]d(int); int f3_%[1]d(int); int main() { return f0_%[1]d(%[1]d) + f3_%[1]d(1); }\n", round)}
	}
	return []work{
		{kind: "CppLink", target: "//server:tool", setup: linkSetup, files: main, script: `g++ -g -o tool main.cc "$SHARED"/u0.o "$SHARED"/u3.o`},
		{kind: "CppLink", target: "//server:static", setup: linkSetup, files: main, script: `g++ -g -static -o server main.cc "$SHARED"/u*.o`},
		{kind: "CppLink", target: "//server:release", setup: linkSetup, files: main, wide: true, script: `g++ -O2 -flto=$CPUS -o server main.cc "$SHARED"/lto*.o`},
		{kind: "CppArchive", target: "//server:lib", setup: linkSetup, files: main, script: `ar rcs lib.a "$SHARED"/u*.o && ranlib lib.a`},
		{
			kind: "ForeignCc", target: "//third_party:library", wide: true, script: "make -s -j$CPUS",
			files: func(round int) map[string]string {
				files := map[string]string{"Makefile": "lib.a: $(patsubst %.c,%.o,$(wildcard *.c))\n\tar rcs $@ $^\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n"}
				for i := range 24 {
					files[fmt.Sprintf("unit%02d.c", i)] = cUnit(i, grown(10+i*i%40, round))
				}
				return files
			},
		},
	}
}

// goFile is the beginning of scripts that change one file of a package: {file} is the file. The
// change differs from that of any other run, so that nothing is in go's cache.
const goFile = `cd "$MODULE"
{ cat {file}; echo; echo "func revision$ROUND() string { return \"$HOME\" }"; for i in $(seq $ROUND); do echo "func grown$i(n int) int { return n + $i }"; done; } >"$HOME/changed.go"
echo "{\"Replace\": {\"$PWD/{file}\": \"$HOME/changed.go\"}}" >"$HOME/overlay.json"
`

// goWorks compile, analyse and test packages of this repository, after a change of one file.
func goWorks() (list []work) {
	for _, w := range []struct{ kind, target, file, run string }{
		{"GoCompilePkg", "//cas/digest", "cas/digest/digest.go", "build ./cas/digest"},
		{"GoCompilePkg", "//scheduler/core", "scheduler/core/doc.go", "build ./scheduler/core"},
		{"GoCompilePkg", "//scheduler/sizeclass", "scheduler/sizeclass/options.go", "build ./scheduler/sizeclass"},
		{"GoCompilePkg", "//vfs:all", "vfs/budget/doc.go", "build ./vfs/..."},
		{"GoCompilePkg", "//worker:all", "cgroup/doc.go", "build ./cgroup ./runner ./worker"},
		{"GoLink", "//cmd/forerunner", "cmd/forerunner/main.go", `build -o "$HOME/made" ./cmd/forerunner`},
		{"GoLink", "//cmd/forerunner-worker", "cmd/forerunner-worker/main.go", `build -o "$HOME/made" ./cmd/forerunner-worker`},
		{"GoVet", "//cas/digest:vet", "cas/digest/digest.go", "vet ./cas/digest"},
		{"GoVet", "//scheduler/core:vet", "scheduler/core/doc.go", "vet ./scheduler/core"},
		{"GoVet", "//prefetch:vet", "prefetch/doc.go", "vet ./prefetch"},
		{"GoTest", "//cas/digest:test", "cas/digest/digest.go", "test -count 1 ./cas/digest"},
		{"GoTest", "//scheduler/sizeclass:test", "scheduler/sizeclass/options.go", "test -count 1 ./scheduler/sizeclass"},
		{"GoTest", "//scheduler/core/fair:test", "scheduler/core/fair/doc.go", "test -count 1 ./scheduler/core/fair"},
		{"GoTest", "//settings:test", "settings/doc.go", "test -count 1 ./settings"},
	} {
		verb, rest, _ := strings.Cut(w.run, " ")
		list = append(list, work{
			kind: w.kind, target: w.target, wide: true,
			script: strings.ReplaceAll(goFile, "{file}", w.file) + "go " + verb + ` -p $CPUS -overlay "$HOME/overlay.json" ` + rest,
		})
	}
	return list
}
