package agent_test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rouse/agent/plan"
	"rouse/internal/domain"
	"rouse/internal/ledger"
)

// wasmAdds is a WebAssembly module with a function add of two numbers.
const wasmAdds = "\x00asm\x01\x00\x00\x00" + "\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f" + "\x03\x02\x01\x00" + "\x07\x07\x01\x03add\x00\x00" + "\x0a\x09\x01\x07\x00\x20\x00\x20\x01\x6a\x0b"

// declaresWASM returns a manifest with a module m, changed by more.
func declaresWASM(more declares) declares {
	w := declares{"moduleId": "m", "sourceKind": "url", "sourceUrl": "./lib/adds.wasm", "sourceLanguage": "rust", "exports": []string{"add"}, "memoryLimitMB": 1,
		"auditHash": fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(wasmAdds)))}
	for key, value := range more {
		w[key] = value
	}
	return declares{"permissions": []any{permission("wasm", "m")}, "wasm": []any{w}}
}

// TestModuleWASM checks OSL-07 and OSL-33: a skill can instantiate the WebAssembly that it declares
// and that was audited. Missing or changed files prevent the run. Without the permission there is
// no WebAssembly.
func TestModuleWASM(t *testing.T) {
	t.Parallel()
	other := fmt.Sprintf("%064d", 1)
	for name, c := range map[string]struct {
		more    declares
		outcome domain.Outcome
		says    string
	}{
		"adds":            {declaresWASM(nil), domain.OutcomeSuccess, `{"got":5}`},
		"inline":          {declaresWASM(declares{"sourceKind": "inline_base64", "sourceUrl": base64.StdEncoding.EncodeToString([]byte(wasmAdds))}), domain.OutcomeSuccess, `{"got":5}`},
		"is built":        {declaresWASM(declares{"sourceKind": "build_from_source", "buildCommand": "make"}), domain.OutcomeSuccess, `{"got":5}`},
		"nobody audited":  {declaresWASM(declares{"auditHash": nil}), domain.OutcomeSuccess, `{"got":5}`},
		"other bytes":     {declaresWASM(declares{"auditHash": "sha256:" + other}), domain.OutcomeError, "its auditHash is sha256:" + other + ": it is not the one that was audited"},
		"no hash":         {declaresWASM(declares{"auditHash": "md5"}), domain.OutcomeError, `its auditHash "md5" is no SHA-256`},
		"elsewhere":       {declaresWASM(declares{"sourceUrl": "https://example.com/adds.wasm"}), domain.OutcomeError, "nothing is fetched"},
		"outside":         {declaresWASM(declares{"sourceUrl": "../adds.wasm"}), domain.OutcomeError, "leads out of the folder"},
		"not there":       {declaresWASM(declares{"sourceUrl": "sub.wasm"}), domain.OutcomeError, "sub.wasm"},
		"is a text":       {declaresWASM(declares{"sourceUrl": "module.ts", "auditHash": nil}), domain.OutcomeError, "it is no WebAssembly module"},
		"no permission":   {func() declares { d := declaresWASM(nil); d["permissions"] = []any{}; return d }(), domain.OutcomeError, "cannot read property 'instantiate' of undefined"},
		"undeclared name": {declaresWASM(declares{"exports": []string{"sub"}}), domain.OutcomeError, `LinkError: the manifest names the export "sub"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := moduleSkill(t, `export async function execute(args: any, host: any) { const m = await host.wasm.instantiate("m"); return {got: m.exports.add(2, 3)} }`, c.more)
			if err := os.MkdirAll(filepath.Join(s.Dir, "lib"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(s.Dir, "lib", "adds.wasm"), []byte(wasmAdds), 0o600); err != nil {
				t.Fatal(err)
			}

			b.plan.Jobs["sums"] = plan.Job{Name: "sums", Agent: "clerk", Skill: s}
			res := b.run(b.enqueue(ledger.Request{Job: "sums", Agent: "clerk"}))
			if said := res.Summary + res.Error; res.Outcome != c.outcome || !strings.Contains(said, c.says) {
				t.Errorf("%s: %s, want %s: %s", res.Outcome, said, c.outcome, c.says)
			}
		})
	}
}
