import time, numpy as np, perdure, shutil, os, statistics, tempfile
from pathlib import Path
rng=np.random.default_rng(0)
def state(total, n, files):
    per=total//n//4
    return {f"c{f}":{f"a{i}":rng.normal(size=per).astype(np.float32) for i in range(n//files)} for f in range(files)}
st=state(int(2.6*2**20),80,6)
base=Path(tempfile.mkdtemp(dir="."))
def raw(p):
    p.mkdir()
    for f,arrs in st.items():
        with open(p/f,"wb") as h:
            for a in arrs.values(): h.write(a)
            h.flush(); os.fsync(h.fileno())
tr,tp,tl=[],[],[]
for i in range(40):
    t=time.perf_counter(); raw(base/f"r{i}"); tr.append(time.perf_counter()-t)
    t=time.perf_counter(); perdure.save(base/f"p{i}",**st); tp.append(time.perf_counter()-t)
    t=time.perf_counter(); perdure.load(base/f"p{i}",**st); tl.append(time.perf_counter()-t)
print("raw",statistics.median(tr)*1e3,"perdure",statistics.median(tp)*1e3,"load",statistics.median(tl)*1e3)
import sys
if len(sys.argv)>1:
    import cProfile,pstats
    pr=cProfile.Profile(); pr.enable()
    for i in range(40): (perdure.save(base/f"q{i}",**st) if sys.argv[1]=="save" else perdure.load(base/f"p{i}",**st))
    pr.disable(); pstats.Stats(pr).sort_stats("tottime").print_stats(18)
shutil.rmtree(base)
