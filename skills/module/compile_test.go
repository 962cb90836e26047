package module_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"rouse/skills/module"
)

// TestCompile checks that TypeScript and its imports become one program, which is cached (OSL-02).
func TestCompile(t *testing.T) {
	t.Parallel()
	dir := skill(t, map[string]string{
		"module.ts": `
			import type { Anything } from "@osloop/types";
			import { even } from "./even";
			import { limits } from "./lib/limits.js";
			import data from "./data.json";
			export async function execute(n: number, host: Anything): Promise<string> { return [even(n), limits.most, data.name].join(); }
			export const onInstall = async () => {};
			export default 1 as const satisfies number;
			function unused(): never { throw 1 }`,
		"even.ts":       `import { odd } from "./odd"; export const even = (n: number): boolean => n === 0 || odd(n - 1);`,
		"odd.ts":        `import { even } from "./even"; export const odd = (n: number): boolean => n !== 0 && even(n - 1);`,
		"lib/limits.ts": `export { limits } from "../limits";`,
		"limits.js":     `export const limits = { most: 7 };`,
		"data.json":     `{ "name": "data" }`,
	})
	m := newMachine(t)
	p, err := m.Compile(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Exports(); !slices.Equal(got, []string{"default", "execute", "onInstall"}) {
		t.Errorf("it exports %q", got)
	}

	i, err := m.Start(t.Context(), p, module.Start{Export: "execute", Args: rawMessage("4")})
	if err != nil {
		t.Fatal(err)
	}
	want(t, ended(t, next(t, i)), `"true,7,data"`)

	// Only changed sources are compiled again.
	if again, err := m.Compile(t.Context(), dir); err != nil || again != p {
		t.Errorf("it was compiled again (%v)", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data.json"), []byte(`{ "name": "other" }`), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := m.Compile(t.Context(), dir); err != nil || changed == p {
		t.Errorf("it was not compiled again (%v)", err)
	}
}

// TestCompileRefuses checks that errors have a file and line (OSL-02).
func TestCompileRefuses(t *testing.T) {
	unraced(t)
	t.Parallel()
	const execute = "\nexport async function execute() {}"
	for name, test := range map[string]struct {
		files map[string]string
		want  string // file:line, and a part of the message
	}{
		"syntax":         {map[string]string{"module.ts": "export async function execute() {\n\tconst = 1;\n}"}, `module.ts:2:8: Expected identifier`},
		"syntax beside":  {map[string]string{"module.ts": `import "./lib/a";` + execute, "lib/a.ts": "\n\nlet a: = 1"}, `lib/a.ts:3:8: `},
		"missing":        {map[string]string{"module.ts": `import "./nothing";` + execute}, `module.ts:1:8: "./nothing" is not in the folder of the skill`},
		"package":        {map[string]string{"module.ts": `import fs from "fs"; fs.x();` + execute}, `module.ts:1:16: a module imports files of its own folder`},
		"node_modules":   {map[string]string{"module.ts": `import "./node_modules/a/index.js";` + execute, "node_modules/a/index.js": ""}, "is not in the folder"},
		"outside":        {map[string]string{"module.ts": `import "../other/module";` + execute}, `"../other/module" leads out of the folder`},
		"outside within": {map[string]string{"module.ts": `import "./a/b";` + execute, "a/b.ts": `import "../../x";`}, `a/b.ts:1:8: "../../x" leads out`},
		"absolute":       {map[string]string{"module.ts": `import "/etc/passwd";` + execute}, "a module imports files of its own folder"},
		"address":        {map[string]string{"module.ts": `import "https://example.com/a.js";` + execute}, "a module imports files of its own folder"},
		"data address":   {map[string]string{"module.ts": `import "data:text/javascript,1";` + execute}, "a module imports files of its own folder"},
		"required":       {map[string]string{"module.ts": `require("child_process");` + execute}, "a module imports files of its own folder"},
		"export missing": {map[string]string{"module.ts": `import { b } from "./a"; b();` + execute, "a.ts": "export const a = 1;"}, `module.ts:1:10: No matching export in "a.ts" for import "b"`},
		"no module":      {map[string]string{"other.ts": "1"}, "there is no module.ts"},
		"nothing":        {nil, "there is no module.ts"},
		"large import":   {map[string]string{"module.ts": `import "./large.json";` + execute, "large.json": `"` + strings.Repeat("x", 1<<20) + `"`}, "large.json has 1048578 bytes, and 1048576 are the most"},
		"large":          {map[string]string{"module.ts": "//" + strings.Repeat("x", 1<<20) + execute}, "module.ts has 1048613 bytes"},
		"memory":         {map[string]string{"module.ts": enumBomb() + execute}, "needs too much memory"},
		"deep":           {map[string]string{"module.ts": "export const a = " + strings.Repeat("(", 1<<20-100) + execute}, ""},
		"deep prefix":    {map[string]string{"module.ts": "export const a = " + strings.Repeat("!", 1<<20-100) + "1;" + execute}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := module.Compile(t.Context(), skill(t, test.files))
			var syntax *module.SyntaxError
			if !errors.As(err, &syntax) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v\nwant %s", err, test.want)
			}
		})
	}
}

// enumBomb is a source whose size doubles with each line once its constants are inlined.
func enumBomb() string {
	var b strings.Builder
	b.WriteString("enum E { a0 = '" + strings.Repeat("x", 1000) + "',\n")
	for n := range 40 {
		fmt.Fprintf(&b, "a%d = a%d + a%d,\n", n+1, n, n)
	}
	return b.String() + "}\nexport const out = E.a40;"
}

// TestCompileFollowsNoLink checks that links are not followed and that a pipe does not block.
func TestCompileFollowsNoLink(t *testing.T) {
	unraced(t)
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}

	outside := skill(t, map[string]string{"secret.ts": `export const secret = "canary";`, "module.ts": "export const execute = 1;"})
	dir := skill(t, map[string]string{"module.ts": `import { secret } from "./secret"; export const execute = () => secret;`})
	if err := os.Symlink(filepath.Join(outside, "secret.ts"), filepath.Join(dir, "secret.ts")); err != nil {
		t.Fatal(err)
	}
	if _, err := module.Compile(t.Context(), dir); err == nil || !strings.Contains(err.Error(), `"./secret" is not in the folder of the skill, or is a link`) {
		t.Errorf("a file: %v", err)
	}

	dir = skill(t, map[string]string{"module.ts": `import { secret } from "./lib/secret"; export const execute = () => secret;`})
	if err := os.Symlink(outside, filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if _, err := module.Compile(t.Context(), dir); err == nil || !strings.Contains(err.Error(), `"./lib/secret" is not in the folder`) {
		t.Errorf("a folder: %v", err)
	}

	dir = t.TempDir()
	if err := os.Symlink(filepath.Join(outside, "module.ts"), filepath.Join(dir, "module.ts")); err != nil {
		t.Fatal(err)
	}
	if _, err := module.Compile(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "there is no module.ts") {
		t.Errorf("the module: %v", err)
	}
}

// TestLines checks that a stack has line numbers of the source files.
func TestLines(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	p, err := m.Compile(t.Context(), skill(t, map[string]string{
		"module.ts": "import { check } from \"./lib/check\";\n\ninterface Args {\n\tn: number;\n}\n\nexport async function execute(args: Args) {\n\tawait null;\n\treturn check(args.n);\n}\n",
		"lib/check.ts": `type N = number;

export function check(n: N): N {
	if (n > 1) {
		throw new RangeError("too many");
	}
	return n;
}`}))
	if err != nil {
		t.Fatal(err)
	}

	i, err := m.Start(t.Context(), p, module.Start{Export: "execute", Args: rawMessage(`{"n":2}`)})
	if err != nil {
		t.Fatal(err)
	}
	end := ended(t, next(t, i))
	failed := start(t, "export async function execute(args: unknown, host: any) {\n\tawait null;\n\tawait host.storage.get();\n}", module.Start{Surface: module.Surface{Methods: []string{"storage.get"}}})
	next(t, failed)
	if end := ended(t, next(t, failed, module.Answer{ID: 1, Error: &module.CallError{Message: "no"}})); !strings.HasPrefix(end.Stack, "    at execute (module.ts:3:") {
		t.Errorf("a call that failed: %s\n%s", end.Error, end.Stack)
	}
	if end.Error != "RangeError: too many" || !strings.HasPrefix(end.Stack, "    at check (lib/check.ts:5:") || !strings.Contains(end.Stack, "\n    at execute (module.ts:9:") || strings.Contains(end.Stack, "eval") {
		t.Errorf("%s\n%s", end.Error, end.Stack)
	}
}
