//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// scopedABI is the first version of Landlock that can restrict signals.
const scopedABI = 6

// probe tries the tiers, strongest first.
func (h *host) probe(ctx context.Context, most Tier) (Tier, []string) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return TierNone, []string{"there is no /proc here, through which commands are started; mount it"}
	}

	h.short = false
	var reasons []string
	abi := landlockABI()
	if abi == 0 {
		return TierNone, []string{"the kernel has no Landlock, or it is not switched on: it came with Linux 5.13, and must stand in /sys/kernel/security/lsm (start the kernel with lsm=landlock,… before the others)"}
	}

	if most == TierNamespaces {
		err := h.trialBubblewrap(ctx)
		if err == nil {
			return TierNamespaces, nil
		}
		reasons = append(reasons, "tier A does not work: "+err.Error())
	}

	if !most.AtLeast(TierLandlock) {
		return TierNone, []string{"nothing stronger than tier " + string(most) + " is wanted"}
	}
	if abi < scopedABI {
		return TierNone, append(reasons, fmt.Sprintf("tier B does not work: this kernel's Landlock is version %d, and before version %d (Linux 6.12) a command could end other programs of this user", abi, scopedABI))
	}

	// A normal user needs a user namespace to create a PID namespace, and user namespaces may be
	// unavailable.
	h.pidNamespace = os.Geteuid() == 0
	err := h.trial(ctx, TierLandlock)
	if err != nil && h.pidNamespace {
		h.pidNamespace = false // root of a container may not be allowed to create namespaces
		err = h.trial(ctx, TierLandlock)
	}
	if err != nil {
		return TierNone, append(reasons, "tier B does not work: "+err.Error())
	}

	return TierLandlock, reasons
}

func (h *host) trialBubblewrap(ctx context.Context) error {
	if h.bwrap = findBwrap(); h.bwrap == "" {
		return errors.New("the program bwrap is not installed; install the package bubblewrap (apt install bubblewrap)")
	}
	if err := h.trial(ctx, TierNamespaces); err != nil {
		return errors.New(diagnose(err.Error()))
	}
	return nil
}

// findBwrap searches folders in which only the administrator can install programs. It does not use
// PATH, because bwrap enforces the confinement.
func findBwrap() string {
	for _, folder := range []string{"/usr/bin", "/usr/local/bin", "/bin", "/run/wrappers/bin", "/run/current-system/sw/bin"} {
		path := filepath.Join(folder, "bwrap")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// trial starts a command on a tier. It returns an error if the command does not run, or if it could
// read a file outside its folders.
func (h *host) trial(ctx context.Context, t Tier) (err error) {
	defer func() { h.short = h.short || isShortage(err) }()
	outside, err := MkdirTemp(h.scratch, "sandbox")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(outside) }()

	canary, inside := filepath.Join(outside, "canary"), filepath.Join(outside, "inside")
	if err := errors.Join(os.WriteFile(canary, []byte("canary"), 0o600), os.Mkdir(inside, 0o700)); err != nil {
		return err
	}

	c, err := Command{Argv: []string{"sh", "-c", ":"}, Dir: inside, Env: []string{"PATH=" + systemPath}, Write: []string{inside}, Stderr: io.Discard,
		Wall: 20 * time.Second}.validated()
	if err != nil {
		return err
	}

	res, err := h.runWithCanaries(ctx, t, c, []string{canary})
	switch {
	case err != nil:
		return errors.Unwrap(err) // unwrap the StartError: the name of the trial's command does not help the owner
	case res.KilledBy != "" || res.Exit != 0:
		return fmt.Errorf("a trial start ended with %d %s %s", res.Exit, res.Signal, res.KilledBy)
	}

	return nil
}

// isShortage reports whether an error is caused by a lack of free resources, not by the machine's
// setup.
func isShortage(err error) bool {
	return slices.ContainsFunc([]unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN}, func(e unix.Errno) bool { return errors.Is(err, e) })
}

const systemPath = "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin"

// diagnose adds the usual cause and its remedy to an error of bubblewrap.
func diagnose(text string) string {
	switch {
	case !strings.Contains(text, "bwrap: "):
	case strings.Contains(text, "Unknown option"):
		text += "; it is older than version 0.8: install a newer one"
	case sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		text += "; AppArmor keeps programs from making user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1): give /usr/bin/bwrap a profile that allows userns (the package apparmor-profiles has bwrap-userns-restrict), or set the value to 0"
	case sysctl("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		text += "; user namespaces are for root alone (kernel.unprivileged_userns_clone is 0): set it to 1"
	case sysctl("/proc/sys/user/max_user_namespaces") == "0":
		text += "; user namespaces are switched off (user.max_user_namespaces is 0): set it to some thousands"
	case exists("/.dockerenv") || exists("/run/.containerenv"):
		text += "; this is a container, whose engine keeps programs from making namespaces or from mounting /proc: run rouse outside of it, or allow both"
	}
	return text
}

func sysctl(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
