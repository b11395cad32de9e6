package engine_test

import "testing"

// The cases are scripts, run on memory and on a real Redis; see script.

func TestC01OverrideWithoutUnit(t *testing.T)        { runCase(t, "C01") }
func TestC02HugeHits(t *testing.T)                   { runCase(t, "C02") }
func TestC04AbsentZeroPeek(t *testing.T)             { runCase(t, "C04") }
func TestC05PeekAtTheLimit(t *testing.T)             { runCase(t, "C05") }
func TestC07DeniedRequestsSpendNothing(t *testing.T) { runCase(t, "C07") }
func TestC11OverrideUnits(t *testing.T)              { runCase(t, "C11") }
func TestC13OverrideOnAShadowRule(t *testing.T)      { runCase(t, "C13") }
func TestC14Refunds(t *testing.T)                    { runCase(t, "C14") }
func TestC16ShadowDoesNotStopOthers(t *testing.T)    { runCase(t, "C16") }
func TestC18Nearest(t *testing.T)                    { runCase(t, "C18") }
func TestC20WaitsRoundUp(t *testing.T)               { runCase(t, "C20") }
func TestC23Unlimited(t *testing.T)                  { runCase(t, "C23") }
func TestC24Replaces(t *testing.T)                   { runCase(t, "C24") }
func TestC25QuotaGroups(t *testing.T)                { runCase(t, "C25") }
func TestC27WhichLimitDenied(t *testing.T)           { runCase(t, "C27") }
func TestC28ShadowOfTheWholeService(t *testing.T)    { runCase(t, "C28") }
func TestC29OddRequests(t *testing.T)                { runCase(t, "C29") }
func TestC30ValuesStayApart(t *testing.T)            { runCase(t, "C30") }
func TestC32NarrowerWildcard(t *testing.T)           { runCase(t, "C32") }
func TestC34WildcardsBelow(t *testing.T)             { runCase(t, "C34") }
func TestC36NoBacktracking(t *testing.T)             { runCase(t, "C36") }
func TestC38SeveralLimits(t *testing.T)              { runCase(t, "C38") }
func TestC39OneAddressManySpellings(t *testing.T)    { runCase(t, "C39") }
func TestC51LimitLowered(t *testing.T)               { runCase(t, "C51") }
func TestC52MoreGenerousNeverDenies(t *testing.T)    { runCase(t, "C52") }
func TestC57LongIdle(t *testing.T)                   { runCase(t, "C57") }
func TestC59LowRates(t *testing.T)                   { runCase(t, "C59") }
func TestC60Zero(t *testing.T)                       { runCase(t, "C60") }
func TestC62ManyPeriods(t *testing.T)                { runCase(t, "C62") }
func TestC63IdleCredit(t *testing.T)                 { runCase(t, "C63") }
func TestC64MonthsAndWeeks(t *testing.T)             { runCase(t, "C64") }
func TestC78CountersAddUp(t *testing.T)              { runCase(t, "C78") }

// What came without a case of its own.

func TestBlocklist(t *testing.T) { runCase(t, "G1") }
func TestLookups(t *testing.T)   { runCase(t, "G2") }

// What the reference service's own tests expect, under profile envoy.

func TestEnvoyConformance(t *testing.T) { runCase(t, "F2") }
