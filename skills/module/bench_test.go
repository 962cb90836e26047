package module_test

import (
	"testing"

	"rouse/agent/sandbox"
	"rouse/skills/module"
)

// BenchmarkStart runs a module from start to end, on the strongest tier and without a sandbox.
func BenchmarkStart(b *testing.B) {
	for _, o := range []sandbox.Options{{}, {MaxTier: sandbox.TierLandlock}, {OffReason: "to measure what confinement costs"}} {
		s, err := sandbox.New(o)
		if err != nil {
			b.Fatal(err)
		}

		tier, _ := s.Tier(b.Context())
		b.Run("tier "+string(tier), func(b *testing.B) {
			m, err := module.New(module.Options{Sandbox: s})
			if err != nil {
				b.Fatal(err)
			}
			p, err := m.Compile(b.Context(), skill(b, map[string]string{"module.ts": "export async function execute() { return 1; }"}))
			if err != nil {
				b.Fatal(err)
			}

			for b.Loop() {
				i, err := m.Start(b.Context(), p, module.Start{Export: "execute", Now: begun})
				if err != nil {
					b.Fatal(err)
				}
				want(b, ended(b, next(b, i)), "1")
				if err := i.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCall measures a call to the host with its answer.
func BenchmarkCall(b *testing.B) {
	i := start(b, `export async function execute(args: unknown, host: any) { for (;;) await host.storage.get("key"); }`,
		module.Start{Timeout: 1e12, Surface: module.Surface{Methods: []string{"storage.get"}}})
	e := next(b, i)
	for b.Loop() {
		e = next(b, i, module.Answer{ID: e.Calls[0].ID, Value: rawMessage(`"value"`), Now: begun})
	}
}

// BenchmarkCompile compiles a small module, with and without the cache.
func BenchmarkCompile(b *testing.B) {
	dir := skill(b, map[string]string{"module.ts": `import { twice } from "./twice"; export async function execute(n: number) { return twice(n); }`,
		"twice.ts": "export const twice = (n: number): number => 2 * n;"})
	b.Run("fresh", func(b *testing.B) {
		for b.Loop() {
			if _, err := module.Compile(b.Context(), dir); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cached", func(b *testing.B) {
		m := newMachine(b)
		for b.Loop() {
			if _, err := m.Compile(b.Context(), dir); err != nil {
				b.Fatal(err)
			}
		}
	})
}
