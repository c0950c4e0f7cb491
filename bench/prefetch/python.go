package prefetch

import (
	"context"
	"path"
	"path/filepath"
	"strings"

	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/client"
)

const python = "/usr/bin/python3"

// pythonModules are modules of the standard library that Debian's python3 has.
const pythonModules = `argparse ast asyncio base64 bisect bz2 calendar cmd code codecs collections.abc compileall
concurrent.futures configparser contextlib copy csv ctypes datetime decimal difflib dis doctest email.mime.multipart
email.mime.text enum filecmp fileinput fnmatch fractions ftplib functools getopt getpass gettext glob graphlib gzip
hashlib heapq hmac html.parser http.client http.cookiejar http.server imaplib importlib.metadata inspect ipaddress json
logging.config logging.handlers lzma mailbox mimetypes multiprocessing.pool netrc numbers opcode operator optparse
pathlib pdb pickle pickletools pkgutil platform plistlib poplib pprint profile pstats pyclbr pydoc queue random re sched
secrets selectors shelve shlex shutil smtplib socketserver sqlite3 ssl statistics string struct subprocess tabnanny
tarfile tempfile textwrap threading timeit tokenize trace tracemalloc typing unittest.mock urllib.request
urllib.robotparser uuid wave weakref webbrowser wsgiref.simple_server xml.dom.minidom xml.etree.ElementTree xml.sax
xmlrpc.client xmlrpc.server zipapp zipfile zoneinfo`

// pythonScript imports the modules in its arguments. Without arguments it prints the sources of
// other modules.
const pythonScript = `import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
if len(sys.argv) == 1:
    library = os.path.dirname(os.__file__)
    known = set(open("modules").read().replace(".", " ").split())
    for folder, folders, files in os.walk(library):
        folders[:] = sorted(f for f in folders if f not in known)
        for file in sorted(files):
            if file.endswith(".py") and file[:-3] not in known:
                sys.stdout.buffer.write(open(os.path.join(folder, file), "rb").read())
`

// pythonWork imports much of the standard library, which is in the input root. It uses the
// machine's interpreter.
func pythonWork(ctx context.Context, b *prefetchBench) (*workload, error) {
	if err := needs(python, "python3"); err != nil {
		return nil, err
	}
	said, err := testbed.Output(ctx, python, "-I", "-c", `import sysconfig; print(sysconfig.get_path("stdlib"))`)
	if err != nil {
		return nil, err
	}
	library := strings.TrimSpace(said)
	// Omit compiled files: files of an input root have no times, so Python could not tell that
	// compiled files match.
	staged, err := b.stage(workPython, library, func(p string) bool {
		base := filepath.Base(p)
		return base != "__pycache__" && base != "test" && !strings.HasPrefix(base, "config-")
	})
	if err != nil {
		return nil, err
	}
	dir, err := b.sources(workPython, map[string]string{"main.py": pythonScript, "modules": pythonModules})
	if err != nil {
		return nil, err
	}
	modules := strings.Join(strings.Fields(pythonModules), " ")
	run := `PYTHONHOME="$PWD/python" exec ` + python + " -B main.py"
	env := []string{"PATH=/usr/bin:/bin"}
	return b.store(ctx, job{
		name: "python3", mnemonic: "Python",
		mounts:  []client.Mount{{Dir: dir}, {Prefix: path.Join("python/lib", filepath.Base(library)), Dir: staged}},
		command: testbed.NewCommand([]string{"/bin/sh", "-c", run + " " + modules + " >out"}, "out", env...),
		strange: testbed.NewCommand([]string{"/bin/sh", "-c", run + " >out"}, "out", env...),
	})
}
