package prefetch

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/forerunner-build/forerunner/bench/program"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/client"
)

const (
	node = "/usr/bin/node"
	npm  = "/usr/bin/npm"
)

// webpackPackages are the npm packages to install, with all their dependencies.
func webpackPackages() []string {
	return []string{"webpack@5.99.9", "webpack-cli@6.0.1", "lodash-es@4.17.21", "react@18.3.1", "react-dom@18.3.1"}
}

// webpackSource is bundled with all modules of its imports.
const webpackSource = `import * as lodash from "lodash-es";
import * as react from "react";
import * as client from "react-dom/client";
console.log(lodash, react, client);
`

// webpackWork bundles packages of npm. They and webpack are in the input root; node is the
// machine's.
func webpackWork(ctx context.Context, b *prefetchBench) (*workload, error) {
	for _, tool := range []string{node, npm} {
		if err := needs(tool, "nodejs npm"); err != nil {
			return nil, err
		}
	}
	dir, err := b.sources(workWebpack, map[string]string{"package.json": `{"private": true}`, "src/index.js": webpackSource})
	if err != nil {
		return nil, err
	}
	args := append([]string{"install", "--no-audit", "--no-fund", "--ignore-scripts"}, webpackPackages()...)
	install := exec.CommandContext(ctx, npm, args...)
	install.Dir = dir
	if said, err := install.CombinedOutput(); err != nil {
		return nil, lack(fmt.Sprintf("npm install of %q: %v: %s", webpackPackages(), err, program.Tail(said)))
	}
	return b.store(ctx, job{
		name: "webpack", mnemonic: "Webpack", mounts: []client.Mount{{Dir: dir}},
		command: testbed.NewCommand([]string{node, "node_modules/webpack/bin/webpack.js", "--mode", "production"},
			"dist/main.js", "HOME=/tmp", "PATH=/usr/bin:/bin"),
	})
}
