package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"rouse/agent/sandbox"
)

// Defaults and bounds of one start (OSL-10: the figures of the sample manifest).
const (
	DefaultTimeout  = 30 * time.Second
	DefaultMemoryMB = 128
	MaxMemoryMB     = 2048

	// ownMemory is what a process needs beside its machine, in bytes: the program itself, and messages on their way.
	ownMemory = 256 << 20
	// grace is how long a machine that was interrupted has to say so.
	grace = 2 * time.Second
	// maxCached bounds the programs that are kept compiled.
	maxCached = 64
)

// Options configure a Machine.
type Options struct {
	Sandbox *sandbox.Sandbox // that confines the processes; needed
	MinTier sandbox.Tier     // the weakest tier that is accepted; B when empty
}

// Machine compiles and starts modules. It is safe for concurrent use.
type Machine struct {
	options Options

	mu    sync.Mutex
	cache map[string]*Program // by folder
}

// New gives a machine. The program that it is part of must call [Child] and [sandbox.Child] first of all.
func New(o Options) (*Machine, error) {
	if o.Sandbox == nil {
		return nil, errors.New("modules run confined, and there is no sandbox")
	}
	return &Machine{options: o, cache: map[string]*Program{}}, nil
}

// Compile is [Compile], which keeps what it compiled while the texts stay what they were.
func (m *Machine) Compile(ctx context.Context, dir string) (*Program, error) {
	at, src, err := readFolder(dir)
	if err != nil {
		return nil, err
	}

	hash := src.hash()
	m.mu.Lock()
	p := m.cache[at]
	m.mu.Unlock()
	if p != nil && p.hash == hash {
		return p, nil
	}
	if p, err = compile(ctx, at, src, hash); err != nil {
		return nil, err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.cache) >= maxCached {
		clear(m.cache)
	}
	m.cache[at] = p
	return p, nil
}

// Start is one call of an export.
type Start struct {
	Export string          // "execute", or a hook
	Args   json.RawMessage // its first argument; the second is host. undefined where it is empty
	// HostAlone has host be its first argument, and the only one.
	HostAlone bool
	Surface   Surface

	MemoryMB int           // of the machine, in MiB; 0: [DefaultMemoryMB], at most [MaxMemoryMB]
	Timeout  time.Duration // of what the machine itself takes; 0: [DefaultTimeout]

	Seed [32]byte       // of Math.random and crypto
	Now  time.Time      // the clock of the module until the first answer
	Zone *time.Location `json:"-"` // zone of its local times; nil or a zone without a name means the machine's

	// AllowedGlobals are those of [Globals] that exist, beside console; those that exist by default where it is empty.
	AllowedGlobals []string

	WASM []WASM // that the module may instantiate, where its surface has wasm.instantiate
}

// Start starts a fresh machine in a process of its own. Nothing of the module runs before the first
// [Instance.Next]. The instance must be closed; ctx is for its start alone.
//
// An error means that nothing was started: [*sandbox.TierError], [*sandbox.StartError].
func (m *Machine) Start(ctx context.Context, p *Program, s Start) (*Instance, error) {
	if s.MemoryMB == 0 {
		s.MemoryMB = DefaultMemoryMB
	}
	if s.Timeout == 0 {
		s.Timeout = DefaultTimeout
	}
	if s.MemoryMB < 0 || s.MemoryMB > MaxMemoryMB || s.Timeout < 0 {
		return nil, fmt.Errorf("a module cannot have %d MiB of memory and %s; at most %d MiB, and neither is negative", s.MemoryMB, s.Timeout, MaxMemoryMB)
	}
	if err := checkWASM(s.WASM); err != nil {
		return nil, err
	}

	i := &Instance{program: p, left: s.Timeout + grace, methods: s.Surface.Methods, first: &startRequest{p.Code, s}}
	var err error
	i.process, err = startProcess(ctx, m.options.Sandbox, m.options.MinTier, zoneName(s.Zone), int64(s.MemoryMB)<<20+ownMemory+wasmMemory(i.first))
	if err != nil {
		return nil, err
	}
	return i, nil
}

// zoneName is what a child is told of a time zone, which is all of its environment; "" is that of the machine.
func zoneName(zone *time.Location) string {
	if zone == nil || zone.String() == "Local" {
		return strings.TrimPrefix(os.Getenv("TZ"), ":")
	}
	return zone.String()
}
