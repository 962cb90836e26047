package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// On Windows, a command has a token without privileges and runs in a job object. The job object
// ends all of its processes when its last handle is closed, also if the daemon dies. The network
// and the files of the user are not restricted: tier C. This file was written from documentation
// and compiled, but never run.

type host struct {
	short bool // always false on this system
}

func newHost(string) (*host, error) { return &host{}, nil }

func (*host) close() error { return nil }

func (h *host) probe(_ context.Context, most Tier) (Tier, []string) {
	reasons := []string{"tiers A and B are for Linux and macOS; here neither files nor the network can be denied"}
	if !most.AtLeast(TierLimits) {
		return TierNone, []string{"nothing stronger than tier " + string(most) + " is wanted"}
	}

	token, err := unprivilegedToken()
	if err != nil {
		return TierNone, append(reasons, "tier C does not work: "+err.Error())
	}

	token.Close()
	job, err := newJob(defaultLimits)
	if err != nil {
		return TierNone, append(reasons, "tier C does not work: "+err.Error())
	}

	windows.CloseHandle(job)
	return TierLimits, reasons
}

func (h *host) run(ctx context.Context, t Tier, c Command) (Result, error) {
	fail := func(err error) (Result, error) { return Result{}, &StartError{Argv0: c.Argv[0], Tier: t, Err: err} }
	l, err := newLayout(c)
	if err != nil {
		return fail(err)
	}

	path, err := findProgram(c, l.dir)
	if err != nil {
		return fail(err)
	}

	job, err := newJob(c.Limits)
	if err != nil {
		return fail(err)
	}
	defer windows.CloseHandle(job)

	// The process is created suspended and resumed inside its job, so that all of its children are
	// inside.
	attr := &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW}
	if t == TierLimits {
		token, err := unprivilegedToken()
		if err != nil {
			return fail(err)
		}
		defer token.Close()
		attr.Token = syscall.Token(token)
	}

	cmd := &exec.Cmd{Path: path, Args: c.Argv, Dir: l.dir, Env: c.Env, SysProcAttr: attr}
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would mean the daemon's environment
	}

	res, err := runToEnd(ctx, cmd, &jobObject{job: job}, c)
	if err != nil {
		return fail(err)
	}

	res.Tier = t
	return res, nil
}

// unprivilegedToken returns the daemon's own token without its privileges.
func unprivilegedToken() (windows.Token, error) {
	var own, weak windows.Token
	const access = windows.TOKEN_DUPLICATE | windows.TOKEN_QUERY | windows.TOKEN_ASSIGN_PRIMARY
	if err := windows.OpenProcessToken(windows.CurrentProcess(), access, &own); err != nil {
		return 0, fmt.Errorf("the token of this process: %w", err)
	}
	defer own.Close()

	const disableMaxPrivilege = 1
	ok, _, err := windows.NewLazySystemDLL("advapi32.dll").NewProc("CreateRestrictedToken").Call(
		uintptr(own), disableMaxPrivilege, 0, 0, 0, 0, 0, 0, uintptr(unsafe.Pointer(&weak)))
	if ok == 0 {
		return 0, fmt.Errorf("a restricted token: %w", err)
	}

	return weak, nil
}

func newJob(l Limits) (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("a job object: %w", err)
	}

	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE | windows.JOB_OBJECT_LIMIT_ACTIVE_PROCESS | windows.JOB_OBJECT_LIMIT_JOB_MEMORY |
				windows.JOB_OBJECT_LIMIT_PROCESS_TIME | windows.JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION,
			ActiveProcessLimit:      uint32(l.Processes),
			PerProcessUserTimeLimit: l.CPU.Nanoseconds() / 100,
		},
		JobMemoryLimit: uintptr(l.Memory),
	}

	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		windows.CloseHandle(job)
		return 0, fmt.Errorf("the limits of a job object: %w", err)
	}

	return job, nil
}

// jobObject controls the processes of a command through their job object.
type jobObject struct {
	job   windows.Handle
	group uint32
}

func (k *jobObject) started(p *os.Process) error {
	k.group = uint32(p.Pid)
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, k.group)
	if err != nil {
		_ = p.Kill()
		return err
	}
	defer windows.CloseHandle(process)

	if err := windows.AssignProcessToJobObject(k.job, process); err != nil {
		_ = p.Kill()
		return fmt.Errorf("putting it into its job object: %w", err)
	}

	return resume(k.group)
}

// resume resumes the only thread of a process that was created suspended.
func resume(pid uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(all)

	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(all, &entry); err == nil; err = windows.Thread32Next(all, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}

		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		defer windows.CloseHandle(thread)

		_, err = windows.ResumeThread(thread)
		return err
	}

	return fmt.Errorf("the thread of a new process was not found: %w", err)
}

func (k *jobObject) terminate() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, k.group)
}
func (k *jobObject) kill() { _ = windows.TerminateJobObject(k.job, 1) }

// usage returns zero, because the job object enforces its limits itself.
func (k *jobObject) usage() usage { return usage{} }

func (k *jobObject) result(state *os.ProcessState) (Result, error) {
	return plainResult(state, ""), nil
}
