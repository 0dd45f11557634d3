package app

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"github.com/flotilla-kube/flotilla/internal/app/shadow"
	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// memoryNow returns the process's memory: the heap in use after the last garbage collection, and
// the resident memory if the kernel reports it.
func memoryNow() shadow.Memory {
	m := shadow.Memory{Live: controllers.LiveHeap()}
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return m // not Linux
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			m.Resident = kilobytes << 10
		case "VmHWM:":
			m.ResidentPeak = kilobytes << 10
		}
	}
	return m
}
