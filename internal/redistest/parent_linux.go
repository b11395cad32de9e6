package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end the server when the test process dies without its cleanup: a panic, a timeout.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
