package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc's times: USER_HZ, which is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// CPU returns how much CPU a process has used, user and system, since it began. See
// proc_pid_stat(5).
func CPU(pid int) (time.Duration, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	used, err := parseStat(string(text))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return used, nil
}

func parseStat(text string) (time.Duration, error) {
	// The second field is the command's name in parentheses, which may contain anything.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("%d fields behind the name, want at least 13", len(fields))
	}
	var total time.Duration
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n) * tick
	}
	return total, nil
}

// Memory is a process's memory, in bytes.
type Memory struct {
	// RSS is the current value, Peak the highest so far.
	RSS, Peak uint64
}

// MemoryOf returns the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return Memory{}, err
	}
	m := Memory{}
	if m.RSS, err = kilobytes(string(text), "VmRSS"); err == nil {
		m.Peak, err = kilobytes(string(text), "VmHWM")
	}
	if err != nil {
		return Memory{}, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// kilobytes returns the value of a line such as "VmRSS: 5136 kB", in bytes.
func kilobytes(text, name string) (uint64, error) {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, name+":")
		if !found {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			return 0, fmt.Errorf("%s is %q, not a number of kB", name, strings.TrimSpace(rest))
		}
		n, err := strconv.ParseUint(fields[0], 10, 64)
		return n * 1024, err
	}
	return 0, fmt.Errorf("no line %s", name)
}

// Times are the CPU times of the whole machine since boot.
type Times struct {
	// Idle is the time in which a core was idle, Total the time of all cores. Time stolen by the
	// hypervisor counts as busy.
	Idle, Total time.Duration
}

// MachineTimes returns the CPU times of the machine.
func MachineTimes() (Times, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Times{}, err
	}
	return parseTimes(string(text))
}

func parseTimes(text string) (Times, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return Times{}, fmt.Errorf("/proc/stat begins with %q, not with the times of all cores", line)
	}
	var t Times
	for i, field := range fields[1:9] { // the guest times that follow are part of user's
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Times{}, fmt.Errorf("/proc/stat: %w", err)
		}
		t.Total += time.Duration(n) * tick
		if i == 3 || i == 4 { // idle, and waiting for a disk
			t.Idle += time.Duration(n) * tick
		}
	}
	return t, nil
}

// IdleShare returns the machine's idle share between two readings, 0 to 1; 1 if no time has passed.
func IdleShare(before, after Times) float64 {
	total := after.Total - before.Total
	if total <= 0 {
		return 1
	}
	return float64(after.Idle-before.Idle) / float64(total)
}
