// SPDX-License-Identifier: Apache-2.0
// elementwise_fits-inl.h -- the polynomials of elementwise_math-inl.h, from the constant term on, with the error that each leaves.
// Fitted with 50 digits: by Remez' exchange for the least greatest error, those of exp, erfc and erf's beginning by interpolation
// at Chebyshev's nodes.
#if defined(NARROWS_ELEMENTWISE_FITS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NARROWS_ELEMENTWISE_FITS_INL_H
#undef NARROWS_ELEMENTWISE_FITS_INL_H
#else
#define NARROWS_ELEMENTWISE_FITS_INL_H
#endif

#include <hwy/highway.h>

#include "ops/float_types.h"

// No function stands here, so none needs the tier's attributes (HWY_BEFORE_NAMESPACE): Clang warns of attributes without one.
namespace narrows::cpu::HWY_NAMESPACE {

// By how an element is stored.
template <class S>
struct Fit;

template <>
struct Fit<float> {
  static constexpr bool kHalf = false;
  static constexpr int kBits = 23;
  static constexpr double kExpNear = 86;  // |x| at which exp(x) is normal by far
  static constexpr double kLn2High = 0.693359375, kLn2Low = -2.12194440054690583e-4;
  // (exp(x) - 1 - x)/x^2 on +-ln(2)/2; of exp(x) it is within 1e-8.
  static constexpr double kExp[] = {0.5, 0.16666576989698775683, 0.041666554617204574203, 0.0083631790527225773704,
                                    0.0013926183587713494542};
  // (2 artanh(s) - 2s)/s^3 in s^2, for |s| up to (sqrt(2) - 1)/(sqrt(2) + 1); of the logarithm within 8.1e-10.
  static constexpr double kLog[] = {0.66666776148315370032, 0.39977564913341308311, 0.29871208664374263588};
  // (sin(r) - r)/r^3 in r^2, for |r| up to pi/2; of the sine within 6.1e-9.
  static constexpr double kSin[] = {-0.16666659550801726891, 0.0083330661665807484598, -0.00019809592854126599666,
                                    2.6057520606793448941e-6};
  // (sin(pi f)/(pi f) - 1)/f^2 and (cos(pi f) - sin(pi f)/(pi f))/(4f^2) in f^2, for |f| up to 1/2; of sinc within 2.4e-11, of its
  // derivative within 1.2e-9.
  static constexpr double kSinc[] = {-1.6449340628501440493, 0.81174220859983995037, -0.19074796316317100708,
                                     0.026117547661084623431, -0.0022371517317977548572};
  static constexpr double kSincSlope[] = {-0.82246703249946872837, 0.81174224810036191008, -0.28612221811296763278,
                                          0.052234949874164185335, -0.0055897775706411670189};
  // pi in parts, and |x| up to which the quotient's products with all but the last leave no error: without fused multiply-adds they
  // need as many zero bits as the quotient has bits.
#if HWY_NATIVE_FMA
  static constexpr double kPi[] = {0x1.921fb4p+1, 0x1.4442dp-23, 0x1.84698ap-47};
  static constexpr double kSinNear = 0x1p16;
#else
  static constexpr double kPi[] = {0x1.921ep+1, 0x1.b544p-15, 0x1.0b4612p-33};
  static constexpr double kSinNear = 400;
#endif
  static constexpr double kTanhOne = 9.1;  // tanh is 1 from here on
  // (y + kShift) erfc(y) exp(y^2) on 0..9.4, in (y - kShift)/(y + kShift), within 5.1e-8.
  static constexpr double kShift = 2;
  static constexpr double kTail[] = {1.0215827525678612792,    -0.68716093058388715098,    0.27946927526140724938,
                                     -0.036435891865681237525, -0.021481830991706122265,   0.0064404491541952232810,
                                     0.0029775059905789182455, -0.00075875056120095187347, -0.00046290516760754898978};
  static constexpr double kErfcNear = 9.25;
  // -log(erfc(y))/y - 1 on 0..kErfOne, where erf becomes 1; of erf within 4.1e-9.
  static constexpr double kErfOne = 3.925;
  static constexpr double kErf[] = {0.1283791716050682176,      0.63661938221577380927,     0.10277783048957890915,
                                    -0.019153070720344578599,   -0.00016037470206888108176, 0.0016669995786007609586,
                                    -0.00063281849979411400485, 0.00011763527151107513656,  -9.2554904050443565447e-6};
  // erf(y)/y on +-1, in y^2, within 1.3e-9.
  static constexpr double kErfSmall[] = {1.1283791658483509460,     -0.37612626666720331023,  0.11283594715160217732,
                                         -0.026854212010626412443,  0.0051890874234339739861, -0.00080168642871658695293,
                                         0.000078758750626854883411};
};

template <>
struct Fit<double> {
  static constexpr bool kHalf = false;
  static constexpr int kBits = 52;
  static constexpr double kExpNear = 707;
  static constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  // Within 1.7e-17.
  static constexpr double kExp[] = {0.5,
                                    0.16666666666666667453,
                                    0.041666666666624127873,
                                    0.0083333333333300618325,
                                    0.0013888888917213716901,
                                    0.00019841269863053616878,
                                    0.000024801521295954375131,
                                    2.7557268459997064772e-6,
                                    2.7620088445409748161e-7,
                                    2.5100385495510319078e-8};
  // Within 1.3e-18.
  static constexpr double kLog[] = {0.66666666666667342085, 0.39999999999415904342, 0.2857142874214452272, 0.22222198595207459773,
                                    0.18183563323962884765, 0.15314072784659209659, 0.14795759255857453706};
  // Within 2.8e-19.
  static constexpr double kSin[] = {-0.16666666666666665568,    0.0083333333333331941146,  -0.00019841269841209146631,
                                    2.7557319211124365769e-6,   -2.5052106871581319695e-8, 1.6058939642745323962e-10,
                                    -7.6429898032792836018e-13, 2.7211567928266067168e-15};
  // Within 4.1e-22 and 3.4e-20.
  static constexpr double kSinc[] = {-1.6449340668482264363,    0.81174242528335361316,    -0.19075182412208257566,
                                     0.026147847817611457447,   -0.0023460810348048213727, 0.00014842878710886517455,
                                     -6.9758403886621299219e-6, 2.530088079571986308e-7,   -7.092119890826358515e-9};
  static constexpr double kSincSlope[] = {-0.82246703342411321821,     0.81174242528335362621,    -0.2861277361831244996,
                                          0.052295695635236058941,     -0.0058652025871472361468, 0.00044528636204078460559,
                                          -0.000024415443104054369476, 1.0120361768401985708e-6,  -3.1912578740775304851e-8};
  static constexpr double kPi[] = {0x1.921fb544p+1, 0x1.0b4611a6p-33, 0x1.3198a2e037073p-68};
  static constexpr double kSinNear = 0x1p20;
  static constexpr double kTanhOne = 19.1;
  // On 0..26.7, within 4.6e-17.
  static constexpr double kShift = 3.75;
  static constexpr double kTail[] = {
      1.0919229095627890783,      -0.95874157665290954515,   0.73631892522174033243,     -0.49047029120768154550,
      0.27906204903438334195,     -0.13195540117833510051,   0.049118778602909242896,    -0.012535880046534033320,
      0.00098633820997180531504,  0.00079482317347338218704, -0.00034864764952752326069, 0.000010593438928041029217,
      0.000037474689107166638519, -8.9015126179951736742e-6, -3.2963769712462554079e-6,  1.6495245463749851491e-6,
      2.8954430924441952371e-7,   -2.5314966090746730432e-7, -3.4193006399120216345e-8,  3.0584644531456013014e-8,
      5.1959874167461485550e-9,   -1.1321607759997182775e-9};
  static constexpr double kErfcNear = 26.5;
  // Within 8.1e-18.
  static constexpr double kErfSmall[] = {1.1283791670955125665,     -0.37612638903183540438,     0.11283791670945006266,
                                         -0.026866170643237770360,  0.0052239776071164227321,    -0.00085483259753896920806,
                                         0.00012055294904839707917, -0.000014924736907419660338, 1.6447424703317362410e-6,
                                         -1.6208483801871705902e-7, 1.3720064546777685604e-8,    -7.7958988270021422416e-10};
};

// Computed in f32, of which f16 keeps eleven bits.
template <>
struct Fit<f16> : Fit<float> {
  static constexpr bool kHalf = true;
  static constexpr double kExp[] = {0.50005152350002031892, 0.16753584443148693773, 0.041275327988330455781};  // within 5.4e-6
  static constexpr double kLog[] = {0.66655618421945455715, 0.4120226633090918974};                            // within 1.5e-7
  static constexpr double kSin[] = {-0.16665852761944672618, 0.0083142670436026040974,
                                    -0.00018541962811044446152};                                               // within 1.2e-6
  static constexpr double kSinc[] = {-1.644853775420375924, 0.80988575649019028045, -0.17826231571001351338};  // within 1.2e-6
  // Within 1.4e-5.
  static constexpr double kShift = 1.5;
  static constexpr double kTail[] = {0.96475282439194713125,  -0.50775014227813822829,   0.075683301568687039946,
                                     0.046785544201666702218, -0.0084185341926877441015, -0.0070382498680575142703};
  // Within 7.3e-7.
  static constexpr double kErf[] = {0.1283799736658257789, 0.6365703189358457233, 0.10323432340302201203, -0.020652918878968558589,
                                    0.0020764171151753788568};
};
template <>
struct Fit<bf16> : Fit<f16> {};

}  // namespace narrows::cpu::HWY_NAMESPACE

#endif
