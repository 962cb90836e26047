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

// Defaults and limits of Start. They match the sample manifest.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultMemoryMB = 128
	MaxMemoryMB     = 2048

	// ownMemory is the memory of a process besides its VM in bytes: the program and its messages.
	ownMemory = 256 << 20
	// grace is the time that an interrupted VM has to report its end.
	grace = 2 * time.Second
	// maxCached is the maximum number of compiled programs in the cache.
	maxCached = 64
)

// Options configure a Machine.
type Options struct {
	Sandbox *sandbox.Sandbox // required; confines the processes
	MinTier sandbox.Tier     // weakest accepted tier; the default is B
}

// Machine compiles and starts modules. It is safe for concurrent use.
type Machine struct {
	options Options

	mu    sync.Mutex
	cache map[string]*Program // by folder
}

// New returns a machine. The program's main function must begin with [Child] and [sandbox.Child].
func New(o Options) (*Machine, error) {
	if o.Sandbox == nil {
		return nil, errors.New("modules run confined, and there is no sandbox")
	}
	return &Machine{options: o, cache: map[string]*Program{}}, nil
}

// Compile compiles the module in dir like the function [Compile]. It returns a cached program if
// the sources have not changed.
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

// Start describes one call of an export.
type Start struct {
	Export string // "execute" or a lifecycle hook
	// Args is the first argument; the second one is host. If Args is empty, the first argument is
	// undefined.
	Args json.RawMessage
	// HostAlone makes host the first and only argument.
	HostAlone bool
	Surface   Surface

	// MemoryMB is the memory limit of the VM in MiB. Zero means [DefaultMemoryMB]. The maximum is
	// [MaxMemoryMB].
	MemoryMB int
	// Timeout limits the execution time of the VM. Zero means [DefaultTimeout].
	Timeout time.Duration

	Seed [32]byte  // seed of Math.random and crypto
	Now  time.Time // the module's clock until the first answer
	// Zone is the time zone of the module. If it is nil or has no name, the system's zone is used.
	Zone *time.Location `json:"-"`

	// AllowedGlobals are the names from [Globals] that are available, in addition to console. If it
	// is empty, the default names are available.
	AllowedGlobals []string

	// WASM lists the modules that can be instantiated, if the surface has wasm.instantiate.
	WASM []WASM
}

// Start starts a new VM in its own process. The module does not run before the first
// [Instance.Next]. The caller must close the instance. ctx applies only to the start.
//
// If it fails, no process is left. Errors include [*sandbox.TierError] and [*sandbox.StartError].
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

// zoneName returns the TZ value for a child, its only environment variable. The value "" means the
// system's zone.
func zoneName(zone *time.Location) string {
	if zone == nil || zone.String() == "Local" {
		return strings.TrimPrefix(os.Getenv("TZ"), ":")
	}
	return zone.String()
}
